"""Rules about the code that no linter checks for us."""

import ast
import re
from pathlib import Path

import pytest

from house.tree import SOURCE, name_of, project_files, python_files

LONGEST_FUNCTION = 60
LONGEST_FILE = 500
CORE = ("model", "decide", "explain", "wire", "settings")
BANNED_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}

LEFT_OVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X{3})\b")
BUILD_MACHINE = re.compile(r"(?<![\w.$}])/(?:work|root)/")
"""An absolute path of the machine of whoever wrote it. Neither pattern matches itself."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def length_of(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is None or len(function.body) == 1:
        return total
    return total - ((first.end_lineno or first.lineno) - first.lineno + 1)


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name} has {length_of(node)} lines"
        for path in python_files()
        for node in ast.walk(parse(path))
        if isinstance(node, Function) and length_of(node) > LONGEST_FUNCTION
    ]

    assert long == []


def test_files_are_short() -> None:
    long = [
        f"{name_of(path)} has {lines} lines"
        for path in python_files()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE
    ]

    assert long == []


def test_every_package_says_what_it_is() -> None:
    silent = [name_of(path) for path in SOURCE.rglob("__init__.py") if not ast.get_docstring(parse(path))]

    assert silent == []


def test_the_core_opens_no_file() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for room in CORE
        for path in python_files(SOURCE / room)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Name) and node.id in {"open", "print", "input"}
    ]

    assert found == []


def test_no_error_is_caught_by_a_name_that_covers_them_all() -> None:
    broad = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files(SOURCE)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
        )
    ]

    assert broad == []


def test_modules_are_named_after_what_they_are() -> None:
    vague = [
        name_of(path)
        for path in python_files()
        if BANNED_NAMES & {path.stem.removeprefix("test_"), *path.relative_to(SOURCE.parents[1]).parent.parts}
    ]

    assert vague == []


@pytest.mark.parametrize(
    "marker",
    [
        pytest.param(LEFT_OVER, id="nothing is left for later"),
        pytest.param(BUILD_MACHINE, id="no path of a machine"),
    ],
)
def test_no_file_contains(marker: re.Pattern[str]) -> None:
    found = [
        f"{name_of(path)}:{number} {line.strip()[:80]}"
        for path in project_files()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        )
        if marker.search(line)
    ]

    assert found == []
