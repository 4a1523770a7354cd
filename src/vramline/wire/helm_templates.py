"""The small part of Helm's template language that the chart is written in.

The chart is the only source of what is installed: Helm renders it, and `vramline install` renders it with
this. Whatever the chart uses beyond this part is an error here, never a different result.

    {{ EXPRESSION }}                              the value as text
    {{ if EXPRESSION }} … {{ end }}               if the value is not empty; `if not EXPRESSION`: if it is
    {{ range $key, $value := EXPRESSION }} … {{ end }}   over a mapping in order of its keys, or over a list
    {{ $name := EXPRESSION }}                     a name for the rest of the block
    {{ /* comment */ }}

`{{-` and `-}}` take the white space beside them along. An expression is a path (`.Values.image`), a variable,
a text in quotes, or `.Files.Glob PATTERN`, and then any number of `| quote`, `| toJson`, `| toString`,
`| sha256sum`, `| replace OLD NEW`.
"""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from vramline.errors import InvariantError

__all__ = ["render_template"]

_ACTION = re.compile(
    r"(?P<before>\s*\{\{-|\{\{)\s*(?P<code>/\*.*?\*/|.*?)\s*(?P<after>-\}\}\s*|\}\})", re.DOTALL
)
_ASSIGNMENT = re.compile(r"(?P<name>\$\w+) := (?P<value>.+)", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"range \$(?P<key>\w+), \$(?P<value>\w+) := (?P<over>.+)", re.ASCII)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\||[^\s|"]+')

_Scope = dict[str, Any]
"""What names mean: `.Values`, `.Release`, `.Chart`, `.Files`, and variables with their dollar sign."""


def render_template(
    text: str, *, values: Mapping[str, Any], release: Mapping[str, Any], files: Mapping[str, str]
) -> str:
    """Return the template with every action carried out.

    `release` holds what a path beside `.Values` may name, such as `Release` and `Chart`; `files` the chart's
    other files by path. Raises `InvariantError` where the template is not of the small part.
    """
    scope = {**release, "Values": values, "Files": files}
    body = _Parser(text).parse()
    return "".join(body(scope))


_Part = Callable[[_Scope], Iterator[str]]
"""A piece of a template: given what names mean, the texts it becomes."""


class _Parser:
    """Turns a template into parts, blocks inside blocks."""

    def __init__(self, text: str) -> None:
        self._actions = _ACTION.finditer(text)
        self._text = text
        self._at = 0

    def parse(self) -> _Part:
        body, end = self._block()
        if end:
            raise InvariantError("template: an end without a beginning")
        return body

    def _block(self) -> tuple[_Part, bool]:
        """Read up to the block's end; whether there was one."""
        parts: list[_Part] = []
        for action in self._actions:
            parts.append(_literal(self._text[self._at : action.start()]))
            self._at = action.end()
            code = action["code"]
            if code == "end":
                return _sequence(parts), True
            if not code.startswith("/*"):
                parts.append(self._action(code))
        parts.append(_literal(self._text[self._at :]))
        self._at = len(self._text)
        return _sequence(parts), False

    def _action(self, code: str) -> _Part:
        word = code.partition(" ")[0]
        assignment = _ASSIGNMENT.fullmatch(code)
        if assignment is not None:
            return _assign(assignment["name"], assignment["value"])
        if word not in {"if", "range"}:
            return _output(code)
        body, ended = self._block()
        if not ended:
            raise InvariantError(f"template: {code!r} has no end")
        return _if(code.removeprefix("if "), body) if word == "if" else _range(code, body)


def _literal(text: str) -> _Part:
    return lambda _scope: iter((text,))


def _sequence(parts: list[_Part]) -> _Part:
    def run(scope: _Scope) -> Iterator[str]:
        inside = dict(scope)  # a name given in a block ends with it
        for part in parts:
            yield from part(inside)

    return run


def _assign(name: str, code: str) -> _Part:
    def give(scope: _Scope) -> Iterator[str]:
        scope[name] = _evaluate(code, scope)
        return iter(())

    return give


def _output(code: str) -> _Part:
    return lambda scope: iter((_as_text(_evaluate(code, scope)),))


def _if(condition: str, body: _Part) -> _Part:
    asked, wanted = condition.removeprefix("not "), not condition.startswith("not ")
    return lambda scope: body(scope) if bool(_evaluate(asked, scope)) is wanted else iter(())


def _range(code: str, body: _Part) -> _Part:
    found = _RANGE.fullmatch(code)
    if found is None:
        raise InvariantError(f"template: {code!r} is not `range $key, $value := …`")

    def repeat(scope: _Scope) -> Iterator[str]:
        over = _evaluate(found["over"], scope)
        items = sorted(over.items()) if isinstance(over, Mapping) else enumerate(over)
        for key, value in items:
            yield from body({**scope, f"${found['key']}": key, f"${found['value']}": value})

    return repeat


def _evaluate(code: str, scope: _Scope) -> Any:  # noqa: ANN401 — a value of the chart may be anything
    """Return the value of a pipeline."""
    commands: list[list[str]] = [[]]
    for word in _WORD.findall(code):
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    value = _first(commands[0], scope)
    for name, *arguments in commands[1:]:
        value = _apply(name, [_operand(argument, scope) for argument in arguments], value)
    return value


def _first(command: list[str], scope: _Scope) -> Any:  # noqa: ANN401 — as above
    match command:
        case [".Files.Glob", pattern]:
            return _matching(scope["Files"], _operand(pattern, scope))
        case [word]:
            return _operand(word, scope)
        case _:
            raise InvariantError(f"template: {' '.join(command)!r} is not understood")


def _matching(files: Mapping[str, str], pattern: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if fnmatch.fnmatchcase(path, pattern)}


def _operand(word: str, scope: _Scope) -> Any:  # noqa: ANN401 — as above
    """Return what one word stands for: a text, a variable, or a path from the root."""
    if word.startswith('"'):
        return msgspec.json.decode(word)
    if word.startswith("$") and not word.startswith("$."):
        path = [word]
    else:
        path = word.removeprefix("$").removeprefix(".").split(".")
    value: Any = scope
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            raise InvariantError(f"template: {word} is not known")
        value = value[name]
    return value


def _apply(name: str, arguments: list[Any], value: Any) -> str:  # noqa: ANN401 — as above
    match name, arguments:
        case "toJson", []:
            return msgspec.json.encode(value, order="deterministic").decode()
        case "toString", []:
            return _as_text(value)
        case "quote", []:
            return msgspec.json.encode(_as_text(value)).decode()
        case "sha256sum", []:
            return hashlib.sha256(_as_text(value).encode()).hexdigest()
        case "replace", [old, new]:
            return _as_text(value).replace(old, new)
        case _:
            raise InvariantError(f"template: {name!r} with {len(arguments)} arguments is not understood")


def _as_text(value: Any) -> str:  # noqa: ANN401 — as above
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise InvariantError(f"template: {value!r} is no text; write `| toJson`")
