"""`BindRequest`: the recorded intent to put a pod on cards, so that a restart resumes it."""

import enum
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from vramline.model.pod import GpuShare
from vramline.units import MAX_MIB, Mib
from vramline.wire.decoding import convert_document
from vramline.wire.own_objects import API_VERSION, OwnMeta, check_version

__all__ = ["BindPhase", "BindRequest", "decode_bind_request", "encode_bind_request"]

KIND = "BindRequest"

_Words = Annotated[str, Meta(min_length=1)]


class BindPhase(enum.StrEnum):
    """How far the binding has got."""

    PENDING = "Pending"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class BindRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's way onto its cards. Name and namespace are the pod's; the pod owns it."""

    namespace: str
    name: str
    pod_uid: str
    node: str
    gpus: tuple[GpuShare, ...]
    """The cards that were planned."""
    phase: BindPhase = BindPhase.PENDING
    reason: str = ""
    attempts: int = 0
    given: tuple[GpuShare, ...] = ()
    """The cards that it got; empty: not known yet, or none."""


class _Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    uuid: _Words
    mib: Annotated[int, Meta(ge=1, le=MAX_MIB)]
    cores: Annotated[int, Meta(ge=0, le=100)] = 0


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    pod_uid: _Words = msgspec.field(name="podUID")
    node: _Words
    gpus: Annotated[list[_Share], Meta(min_length=1)]


class _Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    phase: BindPhase = BindPhase.PENDING
    reason: str = ""
    attempts: Annotated[int, Meta(ge=0)] = 0
    gpus: list[_Share] = []


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    metadata: OwnMeta
    spec: _Spec
    status: _Status | None = None


def decode_bind_request(document: object, *, subject: str = KIND) -> BindRequest:
    """Read a request as a YAML or JSON parser returned it."""
    forms = {"phase": ", ".join(BindPhase)}
    read = convert_document(document, _Document, subject=subject, forms=forms)
    check_version(read.api_version, subject=subject)
    status = read.status or _Status()
    return BindRequest(
        namespace=read.metadata.namespace or "default",
        name=read.metadata.name,
        pod_uid=read.spec.pod_uid,
        node=read.spec.node,
        gpus=_read_shares(read.spec.gpus),
        phase=status.phase,
        reason=status.reason,
        attempts=status.attempts,
        given=_read_shares(status.gpus),
    )


def encode_bind_request(request: BindRequest) -> dict[str, object]:
    """Write a request as plain mappings and lists, ready for JSON or YAML."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": request.name, "uid": request.pod_uid}
    status: dict[str, object] = {"phase": request.phase.value, "attempts": request.attempts}
    if request.reason:
        status["reason"] = request.reason
    if request.given:
        status["gpus"] = _write_shares(request.given)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": request.name, "namespace": request.namespace, "ownerReferences": [owner]},
        "spec": {
            "podUID": request.pod_uid,
            "node": request.node,
            "gpus": _write_shares(request.gpus),
        },
        "status": status,
    }


def _read_shares(shares: Iterable[_Share]) -> tuple[GpuShare, ...]:
    return tuple(GpuShare(share.uuid, Mib(share.mib), share.cores) for share in shares)


def _write_shares(shares: Iterable[GpuShare]) -> object:
    return msgspec.to_builtins([_Share(uuid=gpu.uuid, mib=gpu.mib, cores=gpu.cores) for gpu in shares])
