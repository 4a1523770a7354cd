"""Names in a JSON list are found as a dictionary would find them, or not at all."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.wire.name_table import NameTable

NAMES = st.text(alphabet="abcxyz0189.-", min_size=1, max_size=40)


@given(st.lists(NAMES, min_size=1, max_size=60, unique=True), st.data())
def test_names_are_found_by_their_numbers(names: list[str], data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=80))
    holes = [name if data.draw(st.booleans()) or name in asked else None for name in names]

    found = NameTable(holes).find(msgspec.json.encode(asked))

    assert found is not None
    assert found.numbers.tolist() == [names.index(name) for name in asked]


@given(st.lists(NAMES, min_size=1, max_size=20, unique=True), st.lists(NAMES, min_size=1, max_size=20))
def test_a_list_with_a_stranger_in_it_is_left_to_others(names: list[str], asked: list[str]) -> None:
    found = NameTable(names).find(msgspec.json.encode(asked))

    assert (found is None) == any(name not in names for name in asked)


@given(st.lists(NAMES, min_size=1, max_size=20, unique=True), st.data())
def test_names_are_grouped_by_key_in_their_order(names: list[str], data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.integers(0, 4), min_size=len(names), max_size=len(names)))
    found = NameTable(names).find(msgspec.json.encode(names))
    assert found is not None

    told = list(found.groups(np.array(keys)))

    assert told == [
        (key, b"".join(b'"%b",' % name.encode() for name, its in zip(names, keys, strict=True) if its == key))
        for key in sorted(set(keys))
    ]


@given(
    st.integers(1, 20).flatmap(
        lambda size: st.lists(
            st.text(alphabet="ab0-", min_size=size, max_size=size), min_size=1, max_size=60, unique=True
        )
    ),
    st.data(),
)
def test_names_of_one_length_are_found_too(names: list[str], data: st.DataObject) -> None:
    known = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    asked = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=80))

    found = NameTable([*known, "longer-" + names[0]]).find(msgspec.json.encode(asked))

    assert (found is None) == any(name not in known for name in asked)
    if found is not None:
        assert found.numbers.tolist() == [known.index(name) for name in asked]
        told = b"".join(names for _, names in found.groups(np.zeros(len(asked), dtype=np.int64)))
        assert told == msgspec.json.encode(asked)[1:-1] + b","


def test_names_that_only_look_like_one_of_the_same_length_are_told_apart() -> None:
    """`"a","b",` is as long as `"abcde",`, and ends and begins like it."""
    found = NameTable(["abcde", "a", "b"]).find(b'["abcde","a","b"]')

    assert found is not None
    assert found.numbers.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"[]",
            b"[",
            b'["]',
            b'"a"',
            b'["a"',
            b'["a" ,"b"]',
            b'[ "a"]',
            b'["a","b",]',
            b'["a";"b"]',
            b'["a""b"]',
        ),
        *(b'["a",1,"b"]', b'["\\u0061"]', b'["a\x00"]', b'["a\\""]', b"null", b'{"a":"b"}', b'["a","c"]'),
    ],
)
def test_what_is_no_plain_list_of_known_names_is_left_to_others(text: bytes) -> None:
    assert NameTable(["a", "b"]).find(text) is None


def test_an_empty_table_knows_nobody() -> None:
    assert NameTable([]).find(b'["a"]') is None
    assert NameTable([None]).find(b'["a"]') is None


@given(st.text(alphabet='[]",ab\\', max_size=12))
def test_whatever_is_written_is_found_as_it_is_read_or_left_to_others(text: str) -> None:
    table, names = NameTable(["a", "b", "ab"]), ["a", "b", "ab"]

    found = table.find(text.encode())

    if found is not None:
        assert found.numbers.tolist() == [names.index(name) for name in msgspec.json.decode(text)]
