"""Where a scheduler is killed, and how it is brought to that point."""

import enum
import re
import signal
from dataclasses import dataclass

from controlplane.processes import Child
from faultproxy.faults import At, EditLines, EditWatch, Moment
from faultproxy.proxy import FaultProxy

__all__ = ["POINTS", "KillPoint", "Work", "arm"]


class Work(enum.StrEnum):
    """What goes on while the scheduler is killed."""

    START = "start"
    BINDS = "binds"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class KillPoint:
    """One request, and how far it gets."""

    name: str
    work: Work
    method: str
    path: str
    moment: Moment | None
    """None: in the middle of the lines that a watch sends."""
    query: str = ""
    body: str = ""


def _moments(name: str, work: Work, method: str, path: str, query: str = "") -> list[KillPoint]:
    words = {Moment.BEFORE: "before it is sent", Moment.COMMITTED: "unanswered", Moment.ANSWERED: "answered"}
    return [KillPoint(f"{name}, {word}", work, method, path, moment, query) for moment, word in words.items()]


_LEDGERS = "/gpuledgers"
_LEASE = "/leases/vramline-scheduler$"

POINTS: tuple[KillPoint, ...] = (
    *_moments("the first claim of a node", Work.BINDS, "POST", f"{_LEDGERS}$"),
    *_moments("a further claim", Work.BINDS, "PUT", f"{_LEDGERS}/"),
    *_moments("a binding", Work.BINDS, "POST", "/binding$"),
    *_moments("the removal of claims", Work.ENDS, "PUT", f"{_LEDGERS}/"),
    *_moments("the Lease taken", Work.START, "PUT", _LEASE),
    *_moments("the Lease renewed", Work.BINDS, "PUT", _LEASE),
    KillPoint("the list of pods, asked", Work.START, "GET", "/pods$", Moment.BEFORE, "sendInitialEvents"),
    KillPoint("the list of pods, half of it", Work.START, "GET", "/pods$", None, "sendInitialEvents"),
    KillPoint(
        "the list of ledgers, half of it", Work.START, "GET", f"{_LEDGERS}$", None, "sendInitialEvents"
    ),
)


def arm(proxy: FaultProxy, point: KillPoint, victim: "Victim") -> None:
    """Kill the victim when the point is reached."""
    fault = EditWatch(lambda: _killer(victim)) if point.moment is None else At(point.moment, victim.kill)
    proxy.add(fault, method=point.method, path=point.path, query=point.query)


class Victim:
    """A process that is to be killed; the fault may be armed before the process is there."""

    def __init__(self, child: Child | None = None) -> None:
        self.child = child

    def kill(self) -> None:
        """kill -9."""
        if self.child is not None:
            self.child.signal(signal.SIGKILL)


def _killer(victim: Victim) -> EditLines:
    """Kill at the second line, in its middle."""
    seen: list[bytes] = []

    def edit(line: bytes) -> list[bytes] | None:
        seen.append(line)
        if len(seen) < 2 and re.search(b'"type":"ADDED"', line):
            return [line]
        victim.kill()
        return None

    return edit
