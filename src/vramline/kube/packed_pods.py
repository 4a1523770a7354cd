"""Lines of a watch of pods as one process hands them to another: read, and nothing but what was read.

What pods of one template need of a host is said once, so that they share it here as they do where it was
read. A line about anything but a pod that could be read in one go is left to the receiver.
"""

import msgspec

from vramline.kube.objects import POD_SIGHTINGS, Stored, WatchLine, read_line
from vramline.model.pod import HostNeeds
from vramline.wire.pods import PodSighting

__all__ = ["pack_pods", "unpack_pods"]


class _Line(msgspec.Struct, frozen=True, array_like=True):
    type: str
    item: Stored[PodSighting]
    host: int
    """Which of the batch's hosts the pod needs."""


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    hosts: list[HostNeeds]
    lines: list[_Line | None]


_WRITE = msgspec.msgpack.Encoder()
_READ = msgspec.msgpack.Decoder(_Batch)
_ANY_HOST = HostNeeds()


def pack_pods(lines: bytes) -> bytes:
    """Read lines of a watch, each ended by a line feed but the last, and write what they say."""
    hosts: dict[int, int] = {}
    told: list[HostNeeds] = []
    packed: list[_Line | None] = []
    for text in lines.split(b"\n"):
        line = read_line(POD_SIGHTINGS, text)
        item = line.object
        if not isinstance(item, Stored) or item.value.pod is None or item.value.reservation is not None:
            packed.append(None)
            continue
        host = item.value.pod.host
        if id(host) not in hosts:
            hosts[id(host)] = len(told)
            told.append(host)
        msgspec.structs.force_setattr(item.value.pod, "host", _ANY_HOST)
        packed.append(_Line(line.type, item, hosts[id(host)]))
    return _WRITE.encode(_Batch(told, packed))


def unpack_pods(packed: bytes) -> list[WatchLine[PodSighting] | None]:
    """Return what each line said; None: it is still to be read."""
    batch = _READ.decode(packed)
    found: list[WatchLine[PodSighting] | None] = []
    for line in batch.lines:
        if line is None or line.item.value.pod is None:
            found.append(None)
            continue
        msgspec.structs.force_setattr(line.item.value.pod, "host", batch.hosts[line.host])
        found.append(WatchLine(line.type, line.item))
    return found
