"""From parsed documents to structs; a wrong type becomes a `RequestError` with path and value."""

import re
from collections.abc import Mapping
from types import NoneType
from typing import TypeVar

import msgspec

from vramline.errors import RequestError

__all__ = ["convert_document", "decode_json", "shorten"]

T = TypeVar("T")

_AT = re.compile(r"^(?P<problem>.*?)(?: - at (?P<key>`key` in )?`(?P<path>\$.*)`)?$", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_BOUND = re.compile(r"Expected `[^`]*` (?P<length>of length )?(?P<bound>[<>]=? .*)")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>[0-9]+)\]|(?P<any>\[\.\.\.\])")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
    "datetime": "a point in time",
    "date": "a date",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (NoneType,),
}
_NO_TIME = "is not a point in time"
_TIME_FORMS = "RFC 3339 with a zone, such as 2026-01-01T00:00:00Z"


def convert_document(
    document: object, kind: type[T], *, subject: str, forms: Mapping[str, str] | None = None, root: str = ""
) -> T:
    """Turn what a YAML or JSON parser returned into a struct.

    `forms` says what is accepted in fields whose type does not say it, by the last word of their path;
    `root` is the field in which the document itself was found.
    """
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), document, root, subject, forms or {}) from None


def decode_json(text: str, kind: type[T], *, subject: str, field: str) -> T:
    """Decode JSON kept in an annotation; the error shows the path inside it."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = f"is not JSON ({error})"
        raise RequestError(subject=subject, field=field, value=text, problem=problem) from None
    return convert_document(document, kind, subject=subject, root=field)


def shorten(value: object) -> object:
    """Return a value that can be shown: integers that Python refuses to print become hexadecimal."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1024:
        return hex(value)
    if isinstance(value, list | dict | tuple):
        return None  # the path says enough; the whole branch would not
    return value


def _explain(
    message: str, document: object, root: str, subject: str, forms: Mapping[str, str]
) -> RequestError:
    found = _AT.match(message)
    problem, path = (found["problem"], found["path"] or "$") if found else (message, "$")
    got = _EXPECTED.search(problem)
    value, inner = _look_up(document, path, _TYPES.get(got["got"], (object,)) if got else (object,))
    field = f"{root}.{inner}" if root and inner and not inner.startswith("[") else root + inner
    if found and found["key"]:
        return RequestError(subject=subject, field=field, problem=f"has a key that {_reword(problem)}")
    problem, accepted = _reword(problem), forms.get(inner.rpartition(".")[2], "")
    if "annotations[" in inner or "labels[" in inner:
        problem, accepted = "must be text", _quoted(value)
    elif problem == _NO_TIME:
        accepted = _TIME_FORMS
    return RequestError(
        subject=subject, field=field, value=shorten(value), problem=problem, accepted=accepted
    )


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return f'the value in quotes, "{str(value).lower()}"'
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 128):
        return f'the value in quotes, "{value}"'
    return "text in quotes"


def _reword(problem: str) -> str:
    """Say a type error in words that a writer of YAML knows."""
    if "datetime" in problem:
        return _NO_TIME
    if found := _EXPECTED.search(problem):
        expected = " or ".join(
            _WORDS.get(word, word) for word in found["expected"].split(" | ") if word != "null"
        )
        return f"must be {expected}, not {_WORDS.get(found['got'], found['got'])}"
    if found := _BOUND.search(problem):
        return f"must be {found['length'] or ''}{found['bound']}"
    if found := _MISSING.search(problem):
        return f"has no {found['field']}"
    if problem.startswith("Invalid enum value"):
        return "is not a known word"
    return problem


def _look_up(document: object, path: str, wrong: tuple[type, ...]) -> tuple[object, str]:
    """Follow msgspec's path; where it says "some value of this mapping", find the one of the wrong type."""
    value, field = document, ""
    for step in _STEP.finditer(path):
        if step["name"] is not None and isinstance(value, dict):
            value, field = value.get(step["name"]), f"{field}.{step['name']}" if field else step["name"]
        elif step["index"] is not None and isinstance(value, list | tuple):
            value, field = value[int(step["index"])], f"{field}[{step['index']}]"
        elif step["any"] is not None and isinstance(value, dict):
            key, value = _first_of_type(value, wrong)
            field = f"{field}[{key}]"
        else:
            return None, path.removeprefix("$").removeprefix(".")
    return value, field


def _first_of_type(mapping: dict[object, object], wrong: tuple[type, ...]) -> tuple[object, object]:
    exact = ((key, value) for key, value in mapping.items() if type(value) in wrong)
    return next(exact, ("...", None))
