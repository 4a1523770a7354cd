"""`GpuLedger`: the claims on one node's cards, as the scheduler stores them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from vramline.errors import RequestError
from vramline.model.ask import RealtimeMode
from vramline.model.claim import Claim
from vramline.units import MAX_MIB, Mib
from vramline.wire.decoding import convert_document
from vramline.wire.own_objects import API_VERSION, OwnMeta, check_version
from vramline.wire.times import Timestamp, moment_of, seconds_of
from vramline.wire.uuids import card_of

__all__ = ["GpuLedger", "LedgerDocument", "decode_ledger", "encode_ledger", "ledger_in"]

KIND = "GpuLedger"

_Epoch = Annotated[int, Meta(ge=0, le=2**62)]
_Words = Annotated[str, Meta(min_length=1)]


class GpuLedger(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part of a node's claims: promised, not yet removed. States are derived, not stored."""

    node: str
    epoch: int = 0
    """Which leader wrote it last."""
    claims: tuple[Claim, ...] = ()
    """In the order of the document: card by card."""
    resource_version: str = ""
    """What the API server calls this version; the precondition of the next write."""


class _Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pod_uid: _Words = msgspec.field(name="podUID")
    pod: _Words
    mib: Annotated[int, Meta(ge=1, le=MAX_MIB)]
    cores: Annotated[int, Meta(ge=0, le=100)] = 0
    epoch: _Epoch = 0
    mode: RealtimeMode = RealtimeMode.STRICT
    until: Timestamp | None = None


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    epoch: _Epoch = 0
    claims: dict[_Words, list[_Claim]] | None = None


class LedgerDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ledger object as it stands on the wire."""

    api_version: str
    kind: str
    metadata: OwnMeta
    spec: _Spec | None = None


def decode_ledger(document: object, *, subject: str = KIND) -> GpuLedger:
    """Read a ledger object as a YAML or JSON parser returned it."""
    forms = {"mode": ", ".join(RealtimeMode)}
    return ledger_in(convert_document(document, LedgerDocument, subject=subject, forms=forms), subject)


def ledger_in(document: LedgerDocument, subject: str = KIND) -> GpuLedger:
    """Return the ledger that an object holds; raises `RequestError` where it makes no sense."""
    check_version(document.api_version, subject=subject)
    spec = document.spec or _Spec()
    claims = tuple(
        [
            Claim(
                pod_uid=claim.pod_uid,
                pod=claim.pod,
                gpu=uuid,
                mib=Mib(claim.mib),
                cores=claim.cores,
                epoch=claim.epoch,
                mode=claim.mode,
                until=None if claim.until is None else seconds_of(claim.until),
            )
            for uuid, on_card in _by_card(spec)
            for claim in on_card
        ]
    )
    _refuse_double_claims(claims, subject)
    return GpuLedger(
        node=document.metadata.name,
        epoch=spec.epoch,
        claims=claims,
        resource_version=document.metadata.resource_version or "",
    )


def encode_ledger(ledger: GpuLedger) -> dict[str, object]:
    """Write a ledger object as plain mappings and lists, ready for JSON or YAML."""
    by_card: dict[str, list[_Claim]] = {}
    for claim in ledger.claims:
        stored = _Claim(
            pod_uid=claim.pod_uid,
            pod=claim.pod,
            mib=claim.mib,
            cores=claim.cores,
            epoch=claim.epoch,
            mode=claim.mode,
            until=None if claim.until is None else moment_of(claim.until),
        )
        by_card.setdefault(claim.gpu, []).append(stored)
    meta = msgspec.to_builtins(OwnMeta(name=ledger.node, resource_version=ledger.resource_version or None))
    if ledger.resource_version:
        # One writer, so nobody needs to know who wrote which field: an API server that is told so stops
        # working it out at every write, which is a fifth of what a write costs it.
        meta["managedFields"] = [{}]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": meta,
        "spec": msgspec.to_builtins(_Spec(epoch=ledger.epoch, claims=by_card)),
    }


def _by_card(spec: _Spec) -> list[tuple[str, list[_Claim]]]:
    return [(card_of(uuid), on_card) for uuid, on_card in (spec.claims or {}).items()]


def _refuse_double_claims(claims: tuple[Claim, ...], subject: str) -> None:
    if len({claim.pod_uid for claim in claims}) == len(claims):
        return  # one a pod
    seen: set[tuple[str, str]] = set()
    for claim in claims:
        if (claim.gpu, claim.pod_uid) in seen:
            raise RequestError(
                subject=subject,
                field=f"spec.claims[{claim.gpu}]",
                value=claim.pod_uid,
                problem="holds two claims on this card",
                accepted="one claim for each pod on a card",
            )
        seen.add((claim.gpu, claim.pod_uid))
