"""HAMi's annotations: the register of a node's cards (two encodings) and the devices of a pod."""

import re
from collections.abc import Iterable

import msgspec

from vramline.errors import RequestError
from vramline.model.pod import GpuShare, HamiPhase
from vramline.units import MAX_MIB, Mib
from vramline.wire import keys
from vramline.wire.decoding import decode_json
from vramline.wire.times import format_time, read_time
from vramline.wire.uuids import card_of

__all__ = [
    "ContainerDevice",
    "RegisteredGpu",
    "decode_devices",
    "decode_register",
    "encode_devices",
    "encode_lock",
    "encode_register",
    "encode_register_as_commas",
    "hand_over",
    "read_lock",
    "read_lock_time",
    "read_phase",
    "sum_devices",
]

_VENDOR = "NVIDIA"
_REGISTER = f"annotation {keys.HAMI_REGISTER}"
_DEVICES = f"annotation {keys.HAMI_ALLOCATED}"
_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_MIG_INSTANCE = re.compile(r"\[[^\]]*\]$")
_COLON = re.compile(r"(?<!:):(?!:)")
"""Separates cards and devices; the two colons of a replica id do not."""
_BOOLEANS = {"true": True, "false": False}
_SHORT, _LONG = 7, 9
"""Fields of a card in the comma format, before and since index and mode were added."""


class RegisteredGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One card as HAMi's plugin registers it. JSON leaves out zero values: no `health` means unhealthy."""

    id: str
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False


class ContainerDevice(msgspec.Struct, frozen=True):
    """What one container holds of one device."""

    uuid: str
    vendor: str
    mib: int
    cores: int


def decode_register(text: str, *, subject: str) -> tuple[RegisteredGpu, ...]:
    """Read the register in whichever encoding it is."""
    if text.lstrip().startswith("["):
        return tuple(decode_json(text, list[RegisteredGpu], subject=subject, field=_REGISTER))
    cards = [card for card in _COLON.split(text) if card.strip()]
    if not cards:
        raise RequestError(subject=subject, field=_REGISTER, value=text, problem="lists no card")
    return tuple(_decode_card(card, position, subject) for position, card in enumerate(cards))


def encode_register(cards: Iterable[RegisteredGpu]) -> str:
    """Write the register as JSON, as since HAMi 2.8."""
    return msgspec.json.encode(list(cards)).decode()


def encode_register_as_commas(cards: Iterable[RegisteredGpu]) -> str:
    """Write the register as before HAMi 2.8: nine comma fields a card, a colon after each."""
    return "".join(
        f"{card.id},{card.count},{card.devmem},{card.devcore},{card.type},{card.numa},"
        f"{str(card.health).lower()},{card.index},{card.mode}:"
        for card in cards
    )


def decode_devices(text: str, *, subject: str) -> tuple[tuple[ContainerDevice, ...], ...]:
    """Read the devices of a pod, one tuple per container, init containers first."""
    containers = text.split(";")
    if not containers[-1].strip():
        containers.pop()
    return tuple(
        tuple(_decode_device(device, subject) for device in _COLON.split(container) if device.strip())
        for container in containers
    )


def encode_devices(containers: Iterable[Iterable[ContainerDevice]]) -> str:
    """Write the devices of a pod as HAMi does.

    >>> encode_devices([[ContainerDevice("GPU-1", "NVIDIA", 8000, 30)], []])
    'GPU-1,NVIDIA,8000,30:;;'
    """
    return "".join(
        "".join(f"{each.uuid},{each.vendor},{each.mib},{each.cores}:" for each in container) + ";"
        for container in containers
    )


def sum_devices(containers: Iterable[Iterable[ContainerDevice]]) -> tuple[GpuShare, ...]:
    """Return what a pod holds of each card: containers on one card add up."""
    mib: dict[str, int] = {}
    cores: dict[str, int] = {}
    for container in containers:
        for device in container:
            card = card_of(_MIG_INSTANCE.sub("", device.uuid))
            mib[card] = mib.get(card, 0) + device.mib
            cores[card] = cores.get(card, 0) + device.cores
    return tuple(GpuShare(card, Mib(mib[card]), cores[card]) for card in mib)


def hand_over(
    node: str, gpus: Iterable[GpuShare], device_containers: tuple[bool, ...], *, at: float
) -> dict[str, str]:
    """Return the annotations by which HAMi knows what a pod was given on a node.

    Where a container gets devices from kubelet, HAMi's device plugin is told too what to hand out to it; only
    one container of a pod may. Otherwise only HAMi's scheduler reads them, and counts the pod.
    """
    given = [ContainerDevice(share.uuid, _VENDOR, share.mib, share.cores) for share in gpus]
    containers = [given if gets else [] for gets in device_containers] or [given]
    devices, now = encode_devices(containers), str(int(at))
    told = {keys.HAMI_NODE: node, keys.HAMI_TIME: now, keys.HAMI_ALLOCATED: devices}
    if any(device_containers):
        told |= {
            keys.HAMI_TO_ALLOCATE: devices,
            keys.HAMI_BIND_PHASE: HamiPhase.ALLOCATING.value,
            keys.HAMI_BIND_TIME: now,
        }
    return told


def read_phase(text: str | None) -> HamiPhase:
    """Return how far HAMi's device plugin has got with a pod, by the pod's annotation."""
    return HamiPhase(text) if text in (HamiPhase.ALLOCATING, HamiPhase.SUCCESS) else HamiPhase.NONE


def read_lock(text: str) -> str:
    """Return whom HAMi's node lock names, as namespace/name; empty where it names nobody.

    One that neither is a time alone nor names a pod is returned as it is: HAMi's device plugin fails on it.

    >>> read_lock("2026-01-01T00:00:00Z,team,trainer"), read_lock("2026-01-01T00:00:00Z"), read_lock("")
    ('team/trainer', '', '')
    """
    fields = [field.strip() for field in text.split(",")]
    if len(fields) == 1:
        return ""
    return f"{fields[1]}/{fields[2]}" if len(fields) == 3 and fields[1] and fields[2] else text


def read_lock_time(text: str) -> float | None:
    """Return since when HAMi's node lock stands; None where it does not say.

    >>> read_lock_time("2026-01-01T00:00:00Z,team,trainer"), read_lock_time("long ago,team,trainer")
    (1767225600.0, None)
    """
    try:
        return read_time(text.partition(",")[0].strip(), subject="Node", field=f"annotation {keys.HAMI_LOCK}")
    except RequestError:
        return None


def encode_lock(namespace: str, name: str, *, at: float) -> str:
    """Write a node lock that names a pod, as HAMi does.

    >>> encode_lock("team", "trainer", at=1767225600.9)
    '2026-01-01T00:00:00Z,team,trainer'
    """
    return f"{format_time(int(at))},{namespace},{name}"


def _decode_card(text: str, position: int, subject: str) -> RegisteredGpu:
    fields = [field.strip() for field in text.split(",")]
    where = f"{_REGISTER}, card {position + 1}"
    if len(fields) not in (_SHORT, _LONG):
        raise RequestError(
            subject=subject,
            field=where,
            value=text,
            problem=f"has {len(fields)} fields",
            accepted=f"{_SHORT} or {_LONG}: id,count,devmem,devcore,type,numa,health[,index,mode]",
        )
    if fields[6] not in _BOOLEANS:
        raise RequestError(
            subject=subject, field=f"{where}, health", value=fields[6], problem="is neither true nor false"
        )
    return RegisteredGpu(
        id=fields[0],
        count=_integer(fields[1], f"{where}, count", subject),
        devmem=_integer(fields[2], f"{where}, devmem", subject),
        devcore=_integer(fields[3], f"{where}, devcore", subject),
        type=fields[4],
        numa=_integer(fields[5], f"{where}, numa", subject),
        health=_BOOLEANS[fields[6]],
        index=_integer(fields[7], f"{where}, index", subject) if len(fields) == _LONG else position,
        mode=fields[8] if len(fields) == _LONG else "",
    )


def _decode_device(text: str, subject: str) -> ContainerDevice:
    fields = [field.strip() for field in text.split(",")]
    if len(fields) != 4 or not fields[0]:
        raise RequestError(
            subject=subject,
            field=_DEVICES,
            value=text,
            problem="is not a device",
            accepted="uuid,vendor,MiB,cores",
        )
    mib = _integer(fields[2], f"{_DEVICES}, MiB", subject)
    cores = _integer(fields[3], f"{_DEVICES}, cores", subject)
    if not 0 < mib <= MAX_MIB or not 0 <= cores <= 100:
        raise RequestError(
            subject=subject,
            field=_DEVICES,
            value=text,
            problem="holds no believable amount",
            accepted=f"1 to {MAX_MIB} MiB and 0 to 100 cores",
        )
    return ContainerDevice(fields[0], fields[1], mib, cores)


def _integer(text: str, field: str, subject: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise RequestError(subject=subject, field=field, value=text, problem="is not a whole number")
    return int(text)
