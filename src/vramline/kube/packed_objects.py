"""Objects as one process hands them to another: read, and nothing but what was read.

What many have in common is said once, so that they share it here too: what pods of one template need of a
host, and the labels and annotations of nodes, of which each says only how its own differ from another node's.
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
_NOTHING_COMMON = -1
_Words = dict[str, str]
"""Labels or annotations."""


class _Nodes(msgspec.Struct, frozen=True, array_like=True):
    common: list[_Words]
    read: list[tuple[Stored[NodeObject], int, int]]
    """With which of the common words its labels, and its annotations, were before its own replaced some."""
    unreadable: list[Unreadable]


class _Pods(msgspec.Struct, frozen=True, array_like=True):
    hosts: list[HostNeeds]
    read: list[tuple[Stored[PodSighting], int]]
    """With which of the hosts it needs."""
    unreadable: list[Unreadable]


_WRITE = msgspec.msgpack.Encoder()
_READ_NODES = msgspec.msgpack.Decoder(_Nodes)
_READ_PODS = msgspec.msgpack.Decoder(_Pods)


class _Common:
    """Labels or annotations of which others with the same keys say only how they differ."""

    def __init__(self) -> None:
        self.words: list[_Words] = []
        self._places: dict[tuple[str, ...], int] = {}

    def shorten(self, words: _Words | None) -> tuple[_Words | None, int]:
        """Return what differs, and from which of the words; the first with these keys are taken whole."""
        if not words:
            return words, _NOTHING_COMMON
        place = self._places.setdefault(tuple(words), len(self.words))
        if place == len(self.words):
            self.words.append(words)
            return {}, place
        common = self.words[place]
        return {key: word for key, word in words.items() if word != common[key]}, place


def _pack_nodes(items: Sequence[Item[NodeObject]]) -> bytes:
    common, read = _Common(), []
    for item in items:
        if isinstance(item, Stored):
            meta = item.value.metadata
            labels, its_labels = common.shorten(meta.labels)
            annotations, its_annotations = common.shorten(meta.annotations)
            msgspec.structs.force_setattr(meta, "labels", labels)
            msgspec.structs.force_setattr(meta, "annotations", annotations)
            read.append((item, its_labels, its_annotations))
    return _WRITE.encode(_Nodes(common.words, read, _unreadable(items)))


def _unpack_nodes(packed: bytes) -> list[Item[NodeObject]]:
    nodes = _READ_NODES.decode(packed)
    for item, labels, annotations in nodes.read:
        meta = item.value.metadata
        if labels != _NOTHING_COMMON:
            msgspec.structs.force_setattr(meta, "labels", nodes.common[labels] | (meta.labels or {}))
        if annotations != _NOTHING_COMMON:
            whole = nodes.common[annotations] | (meta.annotations or {})
            msgspec.structs.force_setattr(meta, "annotations", whole)
    return [*(item for item, _, _ in nodes.read), *nodes.unreadable]


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
