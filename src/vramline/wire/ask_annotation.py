"""`vramline.io/ask`: the normalised ask, kept on the pod because admission rewrites the limits it came from.

The pod's identity is not in it: a pod has no name yet when it is admitted, and the pod around it says it.
"""

from functools import lru_cache

import msgspec

from vramline.errors import RequestError
from vramline.model.ask import Ask, Constraints, MibSize, PolicyName, RealtimeMode, ShareSize, Size
from vramline.units import MAX_MIB
from vramline.wire import keys
from vramline.wire.container_asks import MAX_COUNT
from vramline.wire.decoding import decode_json
from vramline.wire.identity import key_of, subject_of, uid_of
from vramline.wire.kubernetes import ObjectMeta

__all__ = ["decode_ask", "encode_ask"]

_FIELD = f"annotation {keys.ASK}"
_MOST_PARTS = 10**9
"""Largest denominator of a share: nine decimals are accepted where it is spelled."""


class _Constraints(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    use_models: tuple[str, ...] = ()
    avoid_models: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    avoid_uuids: tuple[str, ...] = ()
    numa_bind: bool = False


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    gpus: int
    size: Size
    cores: int = 0
    constraints: _Constraints | None = None
    mode: RealtimeMode | None = None
    enable_realtime: bool | None = None
    node_policy: PolicyName | None = None
    gpu_policy: PolicyName | None = None


def encode_ask(ask: Ask) -> str:
    """Write the annotation's value.

    >>> from vramline.units import Mib
    >>> encode_ask(Ask(pod="ns/p", pod_uid="u", gpus=1, size=MibSize(Mib(8000))))
    '{"gpus":1,"size":{"type":"mib","mib":8000}}'
    """
    constraints = msgspec.convert(ask.constraints, _Constraints, from_attributes=True)
    document = _Document(
        gpus=ask.gpus,
        size=ask.size,
        cores=ask.cores,
        constraints=constraints if constraints != _Constraints() else None,
        mode=ask.mode,
        enable_realtime=ask.enable_realtime,
        node_policy=ask.node_policy,
        gpu_policy=ask.gpu_policy,
    )
    return msgspec.json.encode(document).decode()


def decode_ask(text: str, meta: ObjectMeta) -> Ask:
    """Read the annotation's value as the ask of the pod that carries it. The same text is read once."""
    try:
        known = _read_known(text)
    except RequestError:
        known = _read(text, subject_of(meta))  # to say whose it is
    return msgspec.structs.replace(known, pod=key_of(meta), pod_uid=uid_of(meta))


@lru_cache(maxsize=4096)
def _read_known(text: str) -> Ask:
    return _read(text, "")


def _read(text: str, subject: str) -> Ask:
    """Read the annotation's value as the ask of nobody."""
    document = decode_json(text, _Document, subject=subject, field=_FIELD)
    _check(document.gpus, "gpus", 1, MAX_COUNT, subject)
    _check(document.cores, "cores", 0, 100, subject)
    _check_size(document.size, subject)
    return Ask(
        pod="",
        pod_uid="",
        gpus=document.gpus,
        size=document.size,
        cores=document.cores,
        constraints=msgspec.convert(
            document.constraints or _Constraints(), Constraints, from_attributes=True
        ),
        mode=document.mode,
        enable_realtime=document.enable_realtime,
        node_policy=document.node_policy,
        gpu_policy=document.gpu_policy,
    )


def _check_size(size: Size, subject: str) -> None:
    if isinstance(size, MibSize):
        _check(size.mib, "size.mib", 1, MAX_MIB, subject)
    elif isinstance(size, ShareSize):
        _check(size.denominator, "size.denominator", 2, _MOST_PARTS, subject)
        _check(size.numerator, "size.numerator", 1, size.denominator - 1, subject)


def _check(value: int, name: str, low: int, high: int, subject: str) -> None:
    if not low <= value <= high:
        raise RequestError(
            subject=subject,
            field=f"{_FIELD}.{name}",
            value=value,
            problem="is out of bounds",
            accepted=f"{low} to {high}",
        )
