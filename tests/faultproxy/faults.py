"""What can go wrong, and for which requests."""

import enum
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = [
    "Asked",
    "At",
    "Cut",
    "Delay",
    "EditLines",
    "EditWatch",
    "Fault",
    "Hold",
    "Moment",
    "Refuse",
    "Rule",
    "StaleAnswer",
    "SwallowAnswer",
    "cut_after",
    "drop",
    "duplicate",
    "end_with_gone",
]


@dataclass(slots=True)
class Asked:
    """A request that came by, and how it was answered (0: it was not)."""

    method: str
    path: str
    query: str
    body: bytes = b""
    code: int = 0

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a stream of lines."""
        return "watch=true" in self.query


@dataclass(frozen=True, slots=True)
class Cut:
    """Drop the connection; the API server never sees the request."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold the request back for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer in the API server's place."""

    code: int
    retry_after: int | None = None
    reason: str = "Injected"


@dataclass(frozen=True, slots=True)
class SwallowAnswer:
    """Let the API server carry out the request, and keep its answer: cut the connection, or say nothing."""

    hang: bool = False


@dataclass(frozen=True, slots=True)
class StaleAnswer:
    """Answer with the oldest answer to the same question that came by, if there was one."""


class Moment(enum.StrEnum):
    """Where a request is on its way."""

    BEFORE = "before it is sent"
    COMMITTED = "stored, not answered"
    ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class At:
    """Do something, such as killing the client, when the request has got so far; it gets no further."""

    moment: Moment
    act: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a request back until it is let go, and send it then, even if its client is gone."""

    arrived: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)


EditLines = Callable[[bytes], "list[bytes] | None"]


@dataclass(frozen=True, slots=True)
class EditWatch:
    """Pass every line of a watch through a function: it returns what to send instead, or None to cut."""

    make: Callable[[], EditLines]
    """Called once for each watch, so that a function may count."""


Fault = Cut | Delay | Refuse | SwallowAnswer | StaleAnswer | EditWatch | At | Hold


@dataclass(slots=True)
class Rule:
    """A fault for requests that match, so many times."""

    fault: Fault
    method: str = ""
    path: str = ""
    query: str = ""
    times: int = 1

    def matches(self, asked: Asked) -> bool:
        """Whether the fault befalls this request; method is exact, path and query are patterns."""
        return (
            self.times > 0
            and self.method in ("", asked.method)
            and re.search(self.path, asked.path) is not None
            and re.search(self.query, asked.query) is not None
            and (asked.is_watch or not isinstance(self.fault, EditWatch))
        )


def duplicate() -> EditWatch:
    """Send every line of a watch twice, the second time one line late."""

    def make() -> EditLines:
        before: list[bytes] = []

        def edit(line: bytes) -> list[bytes]:
            sent = [line, *before]
            before[:] = [line]
            return sent

        return edit

    return EditWatch(make)


def drop(pattern: bytes) -> EditWatch:
    """Lose the lines that match."""
    return EditWatch(lambda: lambda line: [] if re.search(pattern, line) else [line])


def cut_after(count: int) -> EditWatch:
    """Break the connection after so many lines, in the middle of the next one."""

    def make() -> EditLines:
        left = [count]

        def edit(line: bytes) -> list[bytes] | None:
            left[0] -= 1
            return [line] if left[0] >= 0 else None

        return edit

    return EditWatch(make)


def end_with_gone(pattern: bytes = b"") -> EditWatch:
    """Say 410 instead of a line that matches, as an API server does which has forgotten the version."""
    status = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}'

    def make() -> EditLines:
        return lambda line: (
            [b'{"type":"ERROR","object":' + status + b"}\n"] if re.search(pattern, line) else [line]
        )

    return EditWatch(make)
