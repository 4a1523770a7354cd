"""`vramline.io/allocation`: the sealed annotation that says which cards a pod was given."""

from typing import NoReturn

import msgspec

from vramline.errors import RequestError
from vramline.model.pod import Allocation, GpuShare
from vramline.units import MAX_MIB, Mib
from vramline.wire import keys
from vramline.wire.decoding import decode_json
from vramline.wire.uuids import card_of

__all__ = ["AllocationRecord", "decode_allocation", "encode_allocation", "read_allocation"]

_FIELD = f"annotation {keys.ALLOCATION}"


class _Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    uuid: str
    mib: int
    cores: int = 0


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node: str
    gpus: list[_Share]
    ledger_version: int = 0


_READ = msgspec.json.Decoder(_Document)


class AllocationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotation says: node, cards, and the version of the ledger that made the promise."""

    node: str
    gpus: tuple[GpuShare, ...]
    ledger_version: int = 0


def encode_allocation(record: AllocationRecord) -> str:
    """Write the annotation's value.

    >>> encode_allocation(AllocationRecord(node="n1", gpus=(GpuShare("GPU-1", Mib(8000)),), ledger_version=7))
    '{"node":"n1","gpus":[{"uuid":"GPU-1","mib":8000}],"ledgerVersion":7}'
    """
    shares = [_Share(uuid=gpu.uuid, mib=gpu.mib, cores=gpu.cores) for gpu in record.gpus]
    document = _Document(node=record.node, gpus=shares, ledger_version=record.ledger_version)
    return msgspec.json.encode(document).decode()


def decode_allocation(text: str, *, subject: str) -> AllocationRecord:
    """Read the annotation's value."""
    try:
        document = _READ.decode(text)
    except (msgspec.DecodeError, RecursionError):
        document = decode_json(text, _Document, subject=subject, field=_FIELD)  # to say what is wrong
    shares = tuple(_read_share(share, position, subject) for position, share in enumerate(document.gpus))
    if len(shares) != 1 and (not shares or len({share.uuid for share in shares}) != len(shares)):
        raise RequestError(
            subject=subject,
            field=f"{_FIELD}.gpus",
            value=", ".join(share.uuid for share in shares),
            problem="must name at least one GPU, and each only once",
        )
    return AllocationRecord(node=document.node, gpus=shares, ledger_version=document.ledger_version)


def read_allocation(text: str, *, node: str, subject: str) -> Allocation:
    """Read the cards of a pod that is on `node`."""
    record = decode_allocation(text, subject=subject)
    if record.node != node:
        raise RequestError(
            subject=subject,
            field=f"{_FIELD}.node",
            value=record.node,
            problem=f"contradicts spec.nodeName, which is {node}",
        )
    return Allocation(gpus=record.gpus, origin=keys.ALLOCATION)


def _read_share(share: _Share, position: int, subject: str) -> GpuShare:
    if not share.uuid or not 0 < share.mib <= MAX_MIB or not 0 <= share.cores <= 100:
        _refuse_share(share, f"{_FIELD}.gpus[{position}]", subject)
    return GpuShare(card_of(share.uuid), Mib(share.mib), share.cores)


def _refuse_share(share: _Share, field: str, subject: str) -> NoReturn:
    if not share.uuid:
        raise RequestError(subject=subject, field=f"{field}.uuid", value="", problem="is empty")
    if not 0 < share.mib <= MAX_MIB:
        raise RequestError(
            subject=subject,
            field=f"{field}.mib",
            value=share.mib,
            problem="is not an amount of memory",
            accepted=f"1 to {MAX_MIB}",
        )
    raise RequestError(
        subject=subject,
        field=f"{field}.cores",
        value=share.cores,
        problem="is not a percentage",
        accepted="0 to 100",
    )
