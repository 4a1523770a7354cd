"""Pods that are told together: which of them nothing was known of."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from vramline.model.pod import Pod
from vramline.wire.pods import PodSighting

__all__ = ["Newcomers", "find_newcomers"]


class Newcomers(NamedTuple):
    """Pods by UID, in the order in which they were told."""

    pods: dict[str, Pod]
    versions: dict[str, str]
    others: list[PodSighting]
    """Those that were known, or cannot be read."""


def find_newcomers(seen: Iterable[PodSighting], knows: Callable[[str], bool]) -> Newcomers:
    """Tell apart what is new of many pods; one that is told twice is new once."""
    found = Newcomers({}, {}, [])
    pods, versions, others = found
    for each in seen:
        uid = each.uid
        if each.pod is None or uid in pods or knows(uid):
            others.append(each)
        else:
            pods[uid], versions[uid] = each.pod, each.version
    return found
