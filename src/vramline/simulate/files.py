"""From paths to documents: files, folders, standard input; JSON of any size, YAML within bounds.

One file or document that cannot be read becomes one error and does not stop the others.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from vramline.errors import RequestError
from vramline.simulate.yaml_documents import Document, read_yaml

__all__ = ["STDIN", "Input", "read_paths", "read_text"]

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_ACCEPTED = "Kubernetes manifests as UTF-8 YAML or JSON"
_MOST_YAML = 32 * 2**20
"""Bytes. Larger YAML takes minutes to parse; the same as JSON takes seconds."""
_CHUNK = 2**20


@dataclass(slots=True)
class Input:
    """What could be read, and what could not."""

    documents: list[Document] = field(default_factory=list)
    problems: list[RequestError] = field(default_factory=list)

    def add(self, found: Iterable[Document | RequestError]) -> None:
        """Sort what a reader yielded."""
        for item in found:
            if isinstance(item, RequestError):
                self.problems.append(item)
            else:
                self.documents.append(item)


Report = Callable[[int, int], None]
"""Called with how much has been read, and of how much."""


def _silent(_done: int, _total: int) -> None:
    """Report to nobody."""


def read_paths(paths: Iterable[str], *, stdin: BinaryIO, report: Report = _silent) -> Input:
    """Read files, folders (every *.yaml, *.yml, *.json below) and `-`, each file once, in the order given."""
    found = Input()
    seen: set[str] = set()
    for path in paths:
        for file in _files_of(path):
            if isinstance(file, RequestError):
                found.problems.append(file)
            elif file != STDIN and os.path.realpath(file) in seen:
                continue
            else:
                seen.add(os.path.realpath(file))
                found.add(_read_file(file, stdin, report))
    return found


def read_text(raw: bytes, where: str, *, report: Report = _silent) -> Iterator[Document | RequestError]:
    """Yield the documents of one file's content, or what is wrong with it."""
    if b"\0" in raw:
        yield _unusable(where, _binary_words(raw))
        return
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield _unusable(where, f"is not UTF-8 text (byte {error.start + 1})")
        return
    if not text.strip():
        yield _unusable(where, "is empty")
        return
    yield from _not_only_nothing(_documents_of(text, len(raw), where, report), where)


def _documents_of(text: str, size: int, where: str, report: Report) -> Iterator[Document | RequestError]:
    looks_like_json = text.lstrip()[0] in "{["
    if looks_like_json:
        try:
            yield where, msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return
    if where.endswith(".json") or (looks_like_json and size > _MOST_YAML):
        yield from _read_json(text, where)
    elif size > _MOST_YAML:
        yield _unusable(
            where,
            f"has {size // 2**20} MiB of YAML; more than {_MOST_YAML // 2**20} MiB is not read",
            accepted="the same as JSON (`kubectl get -o json`), of any size, or several smaller files",
        )
    elif looks_like_json:
        yield from _json_or_yaml(text, where)
    else:
        yield from read_yaml(text, where, report=lambda done: report(done, len(text)))


def _json_or_yaml(text: str, where: str) -> Iterator[Document | RequestError]:
    """Read what starts like JSON but is not one JSON value: several of them, or YAML in flow style."""
    several = list(_read_json(text, where))
    if any(isinstance(item, RequestError) for item in several):
        as_yaml = list(read_yaml(text, where))
        if not any(isinstance(item, RequestError) for item in as_yaml):
            several = as_yaml
    yield from several


def _read_json(text: str, where: str) -> Iterator[Document | RequestError]:
    """Read one JSON value after the other. Slower than msgspec, but it says line and column."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = len(text) - len(text.lstrip())
    line = text.count("\n", 0, at) + 1
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
            msgspec.json.encode(value)  # half of a surrogate pair is no text and could not be printed
        except json.JSONDecodeError as error:
            yield RequestError(
                subject=f"{where}:{error.lineno}:{error.colno}", problem=f"is not JSON: {error.msg}"
            )
            return
        except RecursionError:
            yield _unusable(f"{where}:{line}", "is nested too deeply")
            return
        except ValueError as error:
            yield _unusable(f"{where}:{line}", f"is not JSON: {error}")
            return
        yield f"{where}:{line}", value
        while end < len(text) and text[end].isspace():
            end += 1
        line += text.count("\n", at, end)
        at = end


def _not_only_nothing(
    found: Iterable[Document | RequestError], where: str
) -> Iterator[Document | RequestError]:
    """Leave out empty documents, but say so when there is nothing else."""
    nothing = True
    for item in found:
        if isinstance(item, RequestError) or item[1] is not None:
            nothing = False
            yield item
    if nothing:
        yield _unusable(where, "holds no object")


def _files_of(path: str) -> Iterator[str | RequestError]:
    """Yield the files that one argument names, those of a folder in the order of their paths."""
    if path == STDIN or not Path(path).is_dir():
        yield path
        return
    problems: list[OSError] = []
    files = []
    for folder, subfolders, names in os.walk(path, onerror=problems.append):
        subfolders.sort()
        files += [os.path.join(folder, name) for name in names if Path(name).suffix in _SUFFIXES]  # noqa: PTH118 — keeps the path as it was written
    regular = [file for file in sorted(files) if stat.S_ISREG(_mode_of(file))]
    yield from regular
    for problem in problems:
        yield _unusable(str(problem.filename), f"cannot be read: {_words_of(problem)}")
    if not regular and not problems:
        yield _unusable(path, "has no *.yaml, *.yml or *.json file in it")


def _mode_of(file: str) -> int:
    try:
        return Path(file).stat().st_mode
    except OSError:
        return stat.S_IFREG  # reading it will say what is wrong


def _read_file(file: str, stdin: BinaryIO, report: Report) -> Iterator[Document | RequestError]:
    where = "standard input" if file == STDIN else file
    try:
        if file == STDIN:
            raw = _read_all(stdin)
        else:
            with Path(file).open("rb") as stream:
                raw = _read_all(stream)
    except (OSError, ValueError) as error:
        yield _unusable(where, f"cannot be read: {_words_of(error)}")
        return
    yield from read_text(raw, where, report=report)


def _read_all(stream: BinaryIO) -> bytes:
    """Read to the end, but no further than the first chunk of something that is no text (/dev/zero)."""
    head = stream.read(_CHUNK)
    return head if b"\0" in head else head + stream.read()


def _binary_words(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "is UTF-16 text; save it as UTF-8"
    return f"is a binary file (byte {raw.index(0) + 1} is 0)"


def _words_of(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _unusable(where: str, problem: str, accepted: str = _ACCEPTED) -> RequestError:
    return RequestError(subject=where, problem=problem, accepted=accepted)
