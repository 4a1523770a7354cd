"""Which objects the API server has, as far as is known here, and what each message changes about that.

No I/O and no clock: the same messages give the same changes. Versions make it robust: a message about an
object is old news when something at least as new is known of that object, when the object's end at least as
new is known, or when everything up to that version was already told (`floor`). Duplicates therefore change
nothing, nothing comes back to life, and every end is told exactly once.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from vramline.kube.objects import Item, ObjectKey, Stored, Unreadable

__all__ = [
    "Added",
    "Arrived",
    "Change",
    "Changed",
    "Deleted",
    "Departed",
    "Listed",
    "Message",
    "Mirror",
    "Reached",
    "Resumed",
    "Snapshot",
    "Synced",
]

T = TypeVar("T")


# ── what comes in ────────────────────────────────────────────────────────────────────────────────────
class Snapshot(msgspec.Struct, Generic[T], frozen=True):
    """Everything there is, as of one version. What is known and not in it has ended."""

    items: tuple[Item[T], ...]
    version: int


class Arrived(msgspec.Struct, Generic[T], frozen=True):
    """An object is there in this version: ADDED or MODIFIED."""

    item: Item[T]


class Departed(msgspec.Struct, frozen=True):
    """An object is no longer there (or no longer selected), as of this version: DELETED."""

    key: ObjectKey
    version: int


class Reached(msgspec.Struct, frozen=True):
    """Everything up to this version was told: BOOKMARK."""

    version: int


class Listed(msgspec.Struct, frozen=True):
    """Everything that there was at this version has arrived, and nothing was known before that."""

    version: int


class Resumed(msgspec.Struct, frozen=True):
    """A new watch starts after the newest version that is known."""


Message = Snapshot[T] | Arrived[T] | Departed | Reached | Listed | Resumed


# ── what comes out ───────────────────────────────────────────────────────────────────────────────────
class Added(msgspec.Struct, Generic[T], frozen=True):
    """An object that was not known."""

    object: Stored[T]


class Changed(msgspec.Struct, Generic[T], frozen=True):
    """A known object in a newer version."""

    object: Stored[T]


class Deleted(msgspec.Struct, frozen=True):
    """A known object has ended."""

    key: ObjectKey
    uid: str


class Synced(msgspec.Struct, frozen=True):
    """Everything up to this version has been told."""

    version: int


Change = Added[T] | Changed[T] | Deleted | Unreadable | Synced


class _Known(msgspec.Struct, gc=False):
    uid: str
    version: int
    was_told: bool
    """Whether its content could be read at any time."""


class Mirror(Generic[T]):
    """Known objects of one kind, by name, UID and version; their content is handed on and not kept."""

    def __init__(self) -> None:
        self.version = 0
        """Newest version heard of; where a watch resumes."""
        self._known: dict[ObjectKey, _Known] = {}
        self._ended: dict[ObjectKey, int] = {}
        """Ends above the floor, by version: an older message about them must not bring them back."""
        self._floor = 0

    def __len__(self) -> int:
        return len(self._known)

    def step(self, message: Message[T]) -> list[Change[T]]:
        """Take in one message and return what it changes, in order."""
        match message:
            case Snapshot():
                return self._replace(message)
            case Arrived():
                return self._arrive(message.item)
            case Departed():
                return self._depart(message)
            case Reached():
                self.version = max(self.version, message.version)
                self._raise_floor(message.version)
            case Listed():
                self.version = self._floor = message.version
                self._ended.clear()
                return [Synced(message.version)]
            case Resumed():
                self._raise_floor(self.version)
        return []

    def meet(self, items: Iterable[Item[T]]) -> tuple[list[Stored[T]], list[Item[T]]]:
        """Take in objects that were not known, all together; return them, and the rest, which is for `step`.

        It does what `Arrived` does for each of them: every one that is returned first is `Added`.
        """
        known, ended, oldest = self._known, self._ended, self._floor
        new: list[Stored[T]] = []
        rest: list[Item[T]] = []
        for item in items:
            key, version = item.key, item.version
            if isinstance(item, Unreadable) or version <= oldest or key in known or key in ended:
                rest.append(item)
            else:
                known[key] = _Known(item.uid, version, was_told=True)
                new.append(item)
        self.version = max([self.version, *(item.version for item in new)])
        return new, rest

    def _replace(self, snapshot: Snapshot[T]) -> list[Change[T]]:
        """Take a snapshot as the truth, and tell the difference to what was known."""
        there = _newest(snapshot.items)
        changes: list[Change[T]] = [
            self._forget(key) for key in [key for key in self._known if key not in there]
        ]
        for item in there.values():
            known = self._known.get(item.key)
            if known is None or (known.uid, known.version) != (item.uid, item.version):
                changes += self._accept(item)
        self.version = self._floor = snapshot.version
        self._ended.clear()
        changes.append(Synced(snapshot.version))
        return changes

    def _arrive(self, item: Item[T]) -> list[Change[T]]:
        known = self._known.get(item.key)
        newest = max(self._floor, self._ended.get(item.key, 0), known.version if known is not None else 0)
        if item.version <= newest:
            return []
        self.version = max(self.version, item.version)
        return self._accept(item)

    def _depart(self, gone: Departed) -> list[Change[T]]:
        known = self._known.get(gone.key)
        if gone.version <= self._floor or (known is not None and known.version > gone.version):
            return []
        self.version = max(self.version, gone.version)
        self._ended[gone.key] = max(gone.version, self._ended.get(gone.key, 0))
        return [] if known is None else [self._forget(gone.key)]

    def _accept(self, item: Item[T]) -> list[Change[T]]:
        """Make an item the newest that is known of its object."""
        changes: list[Change[T]] = []
        known = self._known.get(item.key)
        if known is not None and known.uid != item.uid:  # the same name, but another object
            changes.append(self._forget(item.key))
            known = None
        was_told = known is not None and known.was_told
        if isinstance(item, Unreadable):
            self._known[item.key] = _Known(item.uid, item.version, was_told)
            return [*changes, item]
        self._known[item.key] = _Known(item.uid, item.version, was_told=True)
        return [*changes, Changed(item) if was_told else Added(item)]

    def _forget(self, key: ObjectKey) -> Deleted:
        return Deleted(key, self._known.pop(key).uid)

    def _raise_floor(self, version: int) -> None:
        if version > self._floor:
            self._floor = version
            self._ended = {key: end for key, end in self._ended.items() if end > version}


def _newest(items: Iterable[Item[T]]) -> dict[ObjectKey, Item[T]]:
    """Return each object once, in its newest version."""
    newest: dict[ObjectKey, Item[T]] = {}
    for item in items:
        other = newest.get(item.key)
        if other is None or other.version < item.version:
            newest[item.key] = item
    return newest
