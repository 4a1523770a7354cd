"""YAML as Kubernetes tools read it."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vramline.errors import RequestError
from vramline.simulate.yaml_documents import read_yaml


def value_of(text: str) -> object:
    (found,) = read_yaml(text, "f")
    assert not isinstance(found, RequestError), str(found)
    return found[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", id="times stay text"),
        pytest.param("2026-01-01", "2026-01-01", id="dates stay text"),
        pytest.param("12:30", "12:30", id="no sexagesimal numbers"),
        pytest.param("1e3", 1000.0, id="an exponent makes a number"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("010", 8, id="octal"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-7", -7, id="negative"),
        pytest.param("0", 0, id="zero"),
        pytest.param("08", 8.0, id="no octal number"),
        pytest.param("1.10", 1.1, id="a float"),
        pytest.param(".5", 0.5, id="a float without a zero"),
        pytest.param("yes", True, id="yes"),
        pytest.param("Off", False, id="off"),
        pytest.param("'yes'", "yes", id="quoted"),
        pytest.param("!!str 5", "5", id="tagged as text"),
        pytest.param("! 5", "5", id="not to be resolved"),
        pytest.param("!!int '5'", 5, id="tagged as a number"),
        pytest.param("~", None, id="null"),
        pytest.param("n", "n", id="a letter"),
        pytest.param("-.inf", -math.inf, id="infinity"),
        pytest.param("9" * 101, "9" * 101, id="a number nobody means"),
        pytest.param("|\n  a\n  b\n", "a\nb\n", id="a block"),
        pytest.param("{a: }", {"a": None}, id="an empty value"),
        pytest.param(
            "{1: a, true: b, null: c, 1.5: d}", {"1": "a", "true": "b", "null": "c", "1.5": "d"}, id="keys"
        ),
        pytest.param("{a: &x [1], b: *x}", {"a": [1], "b": [1]}, id="an alias"),
        pytest.param("{a: &x 5, b: *x}", {"a": 5, "b": 5}, id="an alias of a scalar"),
    ],
)
def test_values(text: str, expected: object) -> None:
    assert value_of(text) == expected


def test_what_a_mapping_says_itself_wins_over_what_is_merged() -> None:
    text = "base: &b {a: 1, c: 2}\nown: {<<: *b, a: 9}\nboth: {<<: [{a: 3}, *b]}\nquoted: {'<<': 1}\n"

    assert value_of(text) == {
        "base": {"a": 1, "c": 2},
        "own": {"a": 9, "c": 2},
        "both": {"a": 3, "c": 2},
        "quoted": {"<<": 1},
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: 1\na: 2", "f:2: cannot be used: the key 'a' is given twice", id="a key twice"),
        pytest.param(
            "1: a\n'1': b", "f:2: cannot be used: the key '1' is given twice", id="two spellings of a key"
        ),
        pytest.param("a: !foo [1]", "the tag !foo", id="a tag on a list"),
        pytest.param("a: &x 1\n*x : 2", "must not be an alias", id="an alias as a key"),
        pytest.param("a: *nowhere", "*nowhere", id="an alias of nothing"),
        pytest.param("b: &x\n  c: *x", "*x", id="an alias inside itself"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    found = list(read_yaml(text, "f"))

    assert problem in " ".join(str(item) for item in found if isinstance(item, RequestError))


def test_a_wrong_document_does_not_hide_its_neighbours() -> None:
    found = list(read_yaml("a: 1\n---\nb: 1\nb: 2\n---\nc: [\n---\nd: 4\n", "f"))

    assert [item if isinstance(item, tuple) else str(item).split(":")[1] for item in found] == [
        ("f:1", {"a": 1}),
        "4",
        "7",
        ("f:8", {"d": 4}),
    ]


def test_a_file_full_of_rubbish_is_given_up() -> None:
    found = list(read_yaml("---\na: [\n" * 100, "f"))

    assert len(found) == 21
    assert "more than 20 broken documents" in str(found[-1])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_what_a_dumper_writes_reads_back(value: object) -> None:
    assert value_of(yaml.safe_dump(value, allow_unicode=True, default_style='"')) == value
