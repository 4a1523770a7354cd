"""YAML as Kubernetes reads it, from parser events straight to values, with bounds against hostile files.

Scalars follow the dialect of Kubernetes tools: times stay text, `1e99` is a number, `yes` is true,
there are no sexagesimal numbers, keys become text. Duplicate keys, foreign tags and aliases that
expand without end are refused. A document that is wrong is set aside; the ones around it are kept.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

import yaml

from vramline.errors import RequestError

__all__ = ["Document", "read_yaml"]

Document = tuple[str, object]
"""Where a document was found (file and line) and what it says."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_EXPANDED = 1_000_000
"""Values that the aliases of one document may stand for."""
_MOST_DEPTH = 200
_MOST_BROKEN = 20
"""Broken documents after which the rest of a file is not looked at any more."""
_REPORT_EVERY = 20_000

_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NEXT_DOCUMENT = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_LONGEST_NUMBER = 100
_PLAIN_STARTS = frozenset("+-.0123456789~nNtTfFyYoO")
_WORDS: dict[str, object] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_TAG + kind for kind in ("null", "bool", "int", "float", "timestamp"))
_TEXT_TAGS = frozenset({_TAG + "str", "!"})
_COLLECTION_TAGS = frozenset({None, "!", _TAG + "map", _TAG + "seq"})


def read_yaml(
    text: str, where: str, *, report: Callable[[int], None] = lambda _done: None
) -> Iterator[Document | RequestError]:
    """Yield every document of a file, or what is wrong with it, in order.

    `report` is called now and then with the number of characters read. After a syntax error reading goes
    on at the next `---`.
    """
    start = 0
    for _ in range(_MOST_BROKEN):
        part = text[start:]
        first_line = text.count("\n", 0, start)
        try:
            yield from _read_part(part, where, first_line, partial(_report_from, start, report))
        except yaml.YAMLError as error:
            line, column = _place_of(error, part)
            place = f"{where}:{first_line + line + 1}:{column + 1}"
            yield RequestError(subject=place, problem=f"is not YAML: {_words_of(error)}")
            found = _NEXT_DOCUMENT.search(text, max(start + 1, start + _offset_of_line(part, line)))
            if found is None:
                return
            start = found.start()
        else:
            return
    yield RequestError(
        subject=where, problem=f"has more than {_MOST_BROKEN} broken documents; the rest was not read"
    )


def _report_from(start: int, report: Callable[[int], None], done: int) -> None:
    report(start + done)


class _FaultError(Exception):
    """One document is unusable although its syntax is right."""

    def __init__(self, problem: str, line: int) -> None:
        self.line = line
        super().__init__(problem)


class _TooDeepError(yaml.MarkedYAMLError):
    """Counts as a syntax error: the parser's effort grows with the square of the depth, so it must stop."""

    def __init__(self, event: yaml.Event) -> None:
        super().__init__(problem=f"it is nested more than {_MOST_DEPTH} levels deep")
        self.place = event.start_mark


class _Frame:
    """A mapping or list that is still open."""

    __slots__ = ("anchor", "key", "merges", "size", "value", "waiting")

    def __init__(self, value: dict[str, object] | list[object], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.size = 1
        self.key = ""
        self.waiting = False
        """A key was read and its value was not."""
        self.merges: list[object] | None = None


class _Builder:
    """Builds one document from its events."""

    def __init__(self, scalars: dict[str, object]) -> None:
        self.stack: list[_Frame] = []
        self.root: object = None
        self.anchors: dict[str, tuple[object, int]] = {}
        self.scalars = scalars

    def take(self, event: yaml.Event) -> None:
        """Take in one event of the document's body."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, {} if isinstance(event, yaml.MappingStartEvent) else [])
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        else:
            self._close()

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        value = self._value_of(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        frame = self.stack[-1] if self.stack else None
        if frame is None or frame.waiting or type(frame.value) is list:
            self._put(value, 1)
        else:
            self._key(frame, event, value)

    def _value_of(self, event: yaml.ScalarEvent) -> object:
        text: str = event.value
        if event.tag is None:
            return self._plain(text) if event.implicit[0] else text
        if event.tag in _TEXT_TAGS:
            return text
        if event.tag in _SCALAR_TAGS:
            return _resolve(text)
        raise _FaultError(f"the tag {event.tag} is not part of Kubernetes YAML", _line_of(event))

    def _plain(self, text: str) -> object:
        if text and text[0] not in _PLAIN_STARTS:
            return text
        if text in self.scalars:
            return self.scalars[text]
        value = _resolve(text)
        if len(self.scalars) < 100_000:
            self.scalars[text] = value
        return value

    def _key(self, frame: _Frame, event: yaml.ScalarEvent, value: object) -> None:
        frame.waiting = True
        frame.key = event.value
        if event.value == "<<" and event.tag is None and event.implicit[0]:
            frame.merges = frame.merges or []
            return
        if not isinstance(value, str):
            frame.key = _key_text(value, event.value)
        if frame.key in frame.value:
            raise _FaultError(f"the key {frame.key[:80]!r} is given twice in one mapping", _line_of(event))

    def _open(self, event: yaml.CollectionStartEvent, value: dict[str, object] | list[object]) -> None:
        if event.tag not in _COLLECTION_TAGS:
            raise _FaultError(f"the tag {event.tag} is not part of Kubernetes YAML", _line_of(event))
        if self.stack and not self.stack[-1].waiting and isinstance(self.stack[-1].value, dict):
            raise _FaultError("a mapping key must be a single word, not a list or mapping", _line_of(event))
        if len(self.stack) >= _MOST_DEPTH:
            raise _TooDeepError(event)
        self.stack.append(_Frame(value, event.anchor))

    def _close(self) -> None:
        frame = self.stack.pop()
        if frame.merges and isinstance(frame.value, dict):
            _merge(frame.value, frame.merges)
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (frame.value, frame.size)
        self._put(frame.value, frame.size)

    def _alias(self, event: yaml.AliasEvent) -> None:
        line = _line_of(event)
        if event.anchor not in self.anchors:
            raise _FaultError(f"the alias *{event.anchor} refers to nothing complete before it", line)
        value, size = self.anchors[event.anchor]
        frame = self.stack[-1]
        if isinstance(frame.value, dict) and not frame.waiting:
            raise _FaultError("a mapping key must not be an alias", line)
        self._put(value, size)
        if frame.size > _MOST_EXPANDED:
            raise _FaultError(f"its aliases stand for more than {_MOST_EXPANDED:,} values", line)

    def _put(self, value: object, size: int) -> None:
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        frame.size += size
        if isinstance(frame.value, list):
            frame.value.append(value)
            return
        frame.waiting = False
        if frame.merges is not None and frame.key == "<<":
            frame.merges.append(value)
        else:
            frame.value[frame.key] = value


def _read_part(
    text: str, where: str, first_line: int, report: Callable[[int], None]
) -> Iterator[Document | RequestError]:
    scalars: dict[str, object] = {}
    builder: _Builder | None = None
    fault: RequestError | None = None
    at = ""
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        kind = type(event)
        if kind is yaml.DocumentStartEvent:
            builder, fault, at = _Builder(scalars), None, ""
        elif kind is yaml.DocumentEndEvent and builder is not None:
            yield fault or (at, builder.root)
            builder = None
        elif builder is not None and fault is None:
            at = at or f"{where}:{first_line + _line_of(event) + 1}"
            try:
                builder.take(event)
            except _FaultError as found:
                line = first_line + found.line + 1
                fault = RequestError(subject=f"{where}:{line}", problem=f"cannot be used: {found}")
        if number % _REPORT_EVERY == 0:
            report(event.start_mark.index if event.start_mark else 0)


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark else 0


def _resolve(text: str) -> object:
    """Return what a plain scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    if _INT.fullmatch(text):
        return _whole(text.replace("_", ""))
    return float(text) if _FLOAT.fullmatch(text) else text


def _whole(digits: str) -> int:
    sign, digits = (-1 if digits.startswith("-") else 1), digits.lstrip("+-")
    if digits.startswith("0") and digits.isdecimal() and digits != "0":
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _key_text(value: object, written: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else written


def _merge(into: dict[str, object], merges: list[object]) -> None:
    """Apply `<<`: what the mapping says itself wins, then the first that says it."""
    for merged in merges:
        for part in merged if isinstance(merged, list) else [merged]:
            if isinstance(part, dict):
                for key, value in part.items():
                    into.setdefault(key, value)


def _place_of(error: yaml.YAMLError, text: str) -> tuple[int, int]:
    """Return line and column of a syntax error, both from 0."""
    for name in ("place", "problem_mark", "context_mark"):
        mark = getattr(error, name, None)
        if mark is not None:
            return mark.line, mark.column
    before = text.encode()[: getattr(error, "position", 0)].decode(errors="ignore")
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)


def _words_of(error: yaml.YAMLError) -> str:
    parts = (getattr(error, name, None) for name in ("problem", "reason", "context"))
    return next((str(part) for part in parts if part), "syntax error")


def _offset_of_line(text: str, line: int) -> int:
    offset = 0
    for _ in range(line):
        offset = text.find("\n", offset) + 1
    return offset
