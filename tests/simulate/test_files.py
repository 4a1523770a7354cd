"""Paths become documents: files, folders, standard input, JSON and YAML."""

import io
import os
from pathlib import Path

import pytest

from vramline.errors import RequestError
from vramline.simulate.files import read_paths, read_text
from vramline.simulate.yaml_documents import Document


def documents(raw: bytes | str, where: str = "f.yaml") -> list[Document]:
    found = list(read_text(raw.encode() if isinstance(raw, str) else raw, where))
    assert not [item for item in found if isinstance(item, RequestError)]
    return [item for item in found if not isinstance(item, RequestError)]


def test_a_folder_is_read_recursively_in_the_order_of_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, text in {
        "c.yaml": "n: 3",
        "b/x.json": '{"n": 2}',
        "a.yml": "n: 1",
        "notes.txt": "n: 4",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    found = read_paths([str(tmp_path)], stdin=io.BytesIO())

    assert [document for _, document in found.documents] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert found.problems == []


def test_a_file_given_twice_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("n: 1", encoding="utf-8")

    found = read_paths([str(file), str(tmp_path)], stdin=io.BytesIO())

    assert len(found.documents) == 1


def test_standard_input_is_read_and_named() -> None:
    found = read_paths(["-"], stdin=io.BytesIO(b"n: 1"))

    assert found.documents == [("standard input:1", {"n": 1})]


def test_a_folder_does_not_wait_for_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "a.yaml").write_text("n: 1", encoding="utf-8")

    found = read_paths([str(tmp_path)], stdin=io.BytesIO())

    assert len(found.documents) == 1


def test_a_dangling_link_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "nowhere")

    found = read_paths([str(tmp_path)], stdin=io.BytesIO())

    assert "cannot be read: No such file" in str(found.problems[0])


def test_an_endless_device_is_not_read_to_its_end() -> None:
    found = read_paths(["/dev/zero"], stdin=io.BytesIO())

    assert "binary" in str(found.problems[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a": 1}', [("f.yaml", {"a": 1})], id="one JSON value"),
        pytest.param(
            '{"a": 1}\n\n{"b": 2}\n', [("f.yaml:1", {"a": 1}), ("f.yaml:3", {"b": 2})], id="two JSON values"
        ),
        pytest.param(
            "{a: 1}\n---\n{b: 2}", [("f.yaml:1", {"a": 1}), ("f.yaml:3", {"b": 2})], id="YAML in flow style"
        ),
        pytest.param("\ufeffa: 1", [("f.yaml:1", {"a": 1})], id="a byte-order mark"),
        pytest.param("a: 1\r\n---\r\nb: 2\r\n", [("f.yaml:1", {"a": 1}), ("f.yaml:3", {"b": 2})], id="CRLF"),
        pytest.param("---\n---\na: 1\n---\n", [("f.yaml:3", {"a": 1})], id="empty documents between"),
        pytest.param("[{a: 1}]", [("f.yaml:1", [{"a": 1}])], id="a list"),
    ],
)
def test_documents_are_found_with_their_lines(text: str, expected: list[Document]) -> None:
    assert documents(text) == expected


def test_json_of_any_size_is_read() -> None:
    text = '{"a": "' + "x" * (33 * 2**20) + '"}'

    assert len(documents(text, "f.json")) == 1


def test_reading_reports_how_far_it_is() -> None:
    seen: list[tuple[int, int]] = []
    text = "a: 1\n---\n" * 20_000

    list(read_text(text.encode(), "f.yaml", report=lambda done, total: seen.append((done, total))))

    assert len(seen) > 2
    assert {total for _, total in seen} == {len(text)}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
