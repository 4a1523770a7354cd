"""Files that are no manifests: one line each, and the other files are read all the same."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from badinput.command import GOOD, BesideGood, Simulate

_LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        pytest.param("a: {b: [\n", "bad.yaml", ("bad.yaml:2:1", "not YAML"), id="broken YAML"),
        pytest.param("a:\n  - b\n c: d\n", "bad.yaml", ("bad.yaml:3:2", "not YAML"), id="bad indentation"),
        pytest.param("\tkind: Pod\n", "bad.yaml", ("bad.yaml:1:1", "not YAML"), id="a tab"),
        pytest.param("a: 1\nb: \x01\n", "bad.yaml", ("bad.yaml:2:4", "control"), id="a control character"),
        pytest.param(
            "kind: Pod\nkind: Node\n", "bad.yaml", ("bad.yaml:2", "'kind'", "twice"), id="a key twice"
        ),
        pytest.param("a: !!python/name:os.system x\n", "bad.yaml", ("bad.yaml:1", "tag"), id="a foreign tag"),
        pytest.param(_LAUGHS, "bad.yaml", ("bad.yaml", "aliases", "1,000,000"), id="a billion laughs"),
        pytest.param("a: &a [*a]\n", "bad.yaml", ("bad.yaml:1", "*a"), id="an alias of itself"),
        pytest.param("? [a]\n: b\n", "bad.yaml", ("bad.yaml:1", "key"), id="a list as a key"),
        pytest.param("a: " + "[" * 100_000, "bad.yaml", ("bad.yaml:1", "nested"), id="deep YAML"),
        pytest.param("[" * 100_000, "bad.json", ("bad.json:1", "nested"), id="deep JSON"),
        pytest.param('{"kind": "Pod",}', "bad.json", ("bad.json:1:16", "not JSON"), id="broken JSON"),
        pytest.param('{"kind": NaN}', "bad.json", ("bad.json:1", "NaN"), id="NaN in JSON"),
        pytest.param('{"kind": "\\ud800"}', "bad.json", ("bad.json:1", "surrogate"), id="half a character"),
        pytest.param(b"", "bad.yaml", ("bad.yaml", "empty", "YAML or JSON"), id="an empty file"),
        pytest.param("# nothing\n---\n", "bad.yaml", ("bad.yaml", "no object"), id="comments only"),
        pytest.param(b"\x7fELF\0\0", "bad.yaml", ("bad.yaml", "binary", "byte 5"), id="a binary file"),
        pytest.param("kind: Pod".encode("utf-16"), "bad.yaml", ("bad.yaml", "UTF-16", "UTF-8"), id="UTF-16"),
        pytest.param(
            "kind: Pód".encode("latin-1"), "bad.yaml", ("bad.yaml", "not UTF-8", "byte 8"), id="latin-1"
        ),
        pytest.param(
            b"a: 1\n" * 10_500_000,
            "bad.yaml",
            ("bad.yaml", "50 MiB", "-o json", "smaller files"),
            id="50 MB of YAML",
        ),
    ],
)
def test_a_bad_file_is_one_line_and_the_good_one_is_read(
    content: str | bytes, name: str, says: tuple[str, ...], beside_good: BesideGood
) -> None:
    said = beside_good(content, name)

    assert said.status == 2
    (error,) = said.errors
    assert [word for word in says if word not in error] == []
    assert said.good_is_bound


def test_documents_around_a_broken_one_are_kept(simulate: Simulate, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    good = GOOD.split("---")
    file.write_text("---".join([*good[:2], "\na: {b: [\n", *good[2:]]), encoding="utf-8")

    said = simulate("-f", file)

    assert said.status == 2
    (error,) = said.errors
    assert error.startswith(f"{file}:13:1: is not YAML")
    assert said.good_is_bound


def test_nothing_is_printed_where_there_is_no_rest(simulate: Simulate, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("a: [", encoding="utf-8")

    said = simulate("-f", file, "-o", "json")

    assert (said.status, said.out, len(said.errors)) == (2, "", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["-f", "nowhere.yaml"], ("nowhere.yaml", "No such file"), id="a missing file"),
        pytest.param([], ("simulate", "nothing to read", "-f PATH"), id="no file"),
        pytest.param(["--policy", "best"], ("--policy", "'best'", "bestfit"), id="an unknown policy"),
        pytest.param(["--realtime", "off"], ("--realtime", "'off'", "disabled"), id="an unknown mode"),
        pytest.param(["--margin", "-1"], ("--margin", "-1", "100Mi"), id="a negative margin"),
        pytest.param(["--v", "eleven"], ("--v", "'eleven'", "0 to 10"), id="verbosity in words"),
        pytest.param(["--now", "today", "x.yaml"], ("--now", "'today'", "RFC 3339"), id="today"),
        pytest.param(["--config", "none.yaml"], ("none.yaml", "No such file"), id="no settings file"),
        pytest.param(["-o", "xml", "-f", "x"], ("--output", "xml"), id="another format"),
        pytest.param(["--colour"], ("--colour", "--help"), id="an unknown option"),
    ],
)
def test_a_wrong_call_is_one_line(
    arguments: list[str],
    says: tuple[str, ...],
    simulate: Simulate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)

    said = simulate(*arguments)

    assert (said.status, said.out) == (2, "")
    (error,) = said.errors
    assert [word for word in says if word not in error] == []


def test_a_folder_without_manifests_is_said(simulate: Simulate, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# nothing", encoding="utf-8")

    said = simulate(tmp_path)

    assert said.status == 2
    assert said.errors[0].startswith(f"{tmp_path}: has no *.yaml, *.yml or *.json file in it; accepted: ")


def test_empty_standard_input_is_said(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    said = simulate("-f", "-")

    assert (said.status, said.errors[0].split(";")[0]) == (2, "standard input: is empty")


def test_no_traceback_reaches_the_shell(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe\x00{")

    done = subprocess.run(
        [sys.executable, "-m", "vramline", "simulate", tmp_path], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert [line[:6] for line in done.stderr.splitlines()] == ["error:"]
    assert "Bound" in done.stdout
