"""Objects as one process hands them to another: read, and nothing but what was read.

What pods of one template need of a host is said once, so that they share it here as they do where it was
read.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from vramline.kube.objects import NODES, POD_SIGHTINGS, Item, Stored, Unreadable
from vramline.kube.second_lister import Packing
from vramline.model.pod import HostNeeds
from vramline.wire.kubernetes import NodeObject
from vramline.wire.pods import PodSighting

__all__ = ["PACKED_NODES", "PACKED_PODS"]

T = TypeVar("T")

_ANY_HOST = HostNeeds()


class _Nodes(msgspec.Struct, frozen=True, array_like=True):
    read: list[Stored[NodeObject]]
    unreadable: list[Unreadable]


class _Pods(msgspec.Struct, frozen=True, array_like=True):
    hosts: list[HostNeeds]
    read: list[tuple[Stored[PodSighting], int]]
    """With which of the hosts it needs."""
    unreadable: list[Unreadable]


_WRITE = msgspec.msgpack.Encoder()
_READ_NODES = msgspec.msgpack.Decoder(_Nodes)
_READ_PODS = msgspec.msgpack.Decoder(_Pods)


def _pack_nodes(items: Sequence[Item[NodeObject]]) -> bytes:
    read = [each for each in items if isinstance(each, Stored)]
    return _WRITE.encode(_Nodes(read, _unreadable(items)))


def _unpack_nodes(packed: bytes) -> list[Item[NodeObject]]:
    nodes = _READ_NODES.decode(packed)
    return [*nodes.read, *nodes.unreadable]


def _pack_pods(items: Sequence[Item[PodSighting]]) -> bytes:
    hosts: dict[int, int] = {}
    told: list[HostNeeds] = []
    read: list[tuple[Stored[PodSighting], int]] = []
    for item in items:
        if not isinstance(item, Stored):
            continue
        host = _ANY_HOST if item.value.pod is None else item.value.pod.host
        if id(host) not in hosts:
            hosts[id(host)] = len(told)
            told.append(host)
        if item.value.pod is not None:
            msgspec.structs.force_setattr(item.value.pod, "host", _ANY_HOST)
        read.append((item, hosts[id(host)]))
    return _WRITE.encode(_Pods(told, read, _unreadable(items)))


def _unpack_pods(packed: bytes) -> list[Item[PodSighting]]:
    pods = _READ_PODS.decode(packed)
    for item, host in pods.read:
        if item.value.pod is not None:
            msgspec.structs.force_setattr(item.value.pod, "host", pods.hosts[host])
    return [*(item for item, _ in pods.read), *pods.unreadable]


def _unreadable(items: Sequence[Item[T]]) -> list[Unreadable]:
    return [each for each in items if isinstance(each, Unreadable)]


PACKED_NODES = Packing(NODES, _pack_nodes, _unpack_nodes)
PACKED_PODS = Packing(POD_SIGHTINGS, _pack_pods, _unpack_pods)
