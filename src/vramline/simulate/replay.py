"""The decisions of a snapshot, made again: the same input must give the same answer, to the last bit."""

import base64
import binascii

import msgspec

from vramline.errors import RequestError
from vramline.explain.history import DecisionRecord
from vramline.explain.replay import JOURNAL_FORMAT, decide_again, decode_cases

__all__ = ["Replay", "Replayed", "replay_snapshot"]

_HOW = "what GET /snapshot of this version answered, whole"


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, then and now."""

    at: float
    pod: str
    then: DecisionRecord
    now: DecisionRecord
    same: bool

    def difference(self) -> str:
        """Name what is not the same, for people; empty: nothing."""
        if self.same:
            return ""
        then, now = msgspec.to_builtins(self.then), msgspec.to_builtins(self.now)
        parts = [name for name in then if name != "explanation" and then[name] != now[name]]
        inner = then["explanation"]
        parts += [f"explanation.{name}" for name in inner if inner[name] != now["explanation"][name]]
        return ", ".join(parts)


class Replay(msgspec.Struct, frozen=True):
    """Every decision of a snapshot that could be made again, oldest first."""

    decisions: list[Replayed]

    @property
    def differing(self) -> int:
        """How many came out differently."""
        return sum(not each.same for each in self.decisions)


class _Journal(msgspec.Struct):
    format: int
    cases: str


class _Snapshot(msgspec.Struct):
    kind: str
    journal: _Journal | None = None


def replay_snapshot(text: bytes, *, subject: str) -> Replay:
    """Make the decisions of a snapshot again; `RequestError` for what is no snapshot."""
    journal = _read_journal(text, subject)
    try:
        packed = base64.b64decode(journal.cases, validate=True)
    except binascii.Error as error:
        raise _broken(subject, "journal.cases", f"cannot be read ({error}); the file was changed") from None
    replayed = []
    for case, record in decode_cases(packed, subject=subject):
        then = msgspec.structs.replace(record, id=0)
        now = decide_again(case)
        same = msgspec.json.encode(then) == msgspec.json.encode(now)
        replayed.append(Replayed(at=then.at, pod=then.pod, then=then, now=now, same=same))
    return Replay(replayed)


def _read_journal(text: bytes, subject: str) -> _Journal:
    try:
        snapshot = msgspec.json.decode(text, type=_Snapshot)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _broken(subject, "", f"is no snapshot ({error})") from None
    if snapshot.journal is None:
        problem = "holds no decisions; `vramline simulate -f` places its pods anew"
        raise _broken(subject, "journal", problem)
    if snapshot.journal.format != JOURNAL_FORMAT:
        problem = f"is of format {snapshot.journal.format}, which this version does not read"
        raise _broken(subject, "journal.format", problem)
    return snapshot.journal


def _broken(subject: str, field: str, problem: str) -> RequestError:
    return RequestError(subject=subject, field=field, problem=problem, accepted=_HOW)
