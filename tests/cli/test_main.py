"""The command line as a whole: help, version, and what each kind of error looks like."""

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from vramline import __version__
from vramline.cli import main as main_module
from vramline.cli.apps import new_app
from vramline.cli.main import COMMANDS, Command, main
from vramline.errors import InvariantError, MistakesError, RequestError, TransientError

COMMAND = [sys.executable, "-m", "vramline"]


def mistake(field: str) -> RequestError:
    return RequestError(subject="pod ns/p", field=field, value="x", problem="is wrong", accepted="y")


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Make `vramline boom` call a function of the test."""

    def _register(action: Callable[[], None]) -> None:
        module = types.ModuleType("boom_command")
        app = new_app()
        app.command()(action)
        vars(module)["app"] = app
        monkeypatch.setitem(sys.modules, "boom_command", module)
        monkeypatch.setattr(main_module, "COMMANDS", (Command("boom", "boom_command", "Go off."),))

    return _register


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    printed = capsys.readouterr().out
    assert all(f"\n  {command.name} " in printed for command in COMMANDS)


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    assert capsys.readouterr().out.startswith("Usage: vramline ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"vramline {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            ["conf"],
            "error: No such command 'conf'. Did you mean 'config'?; see `vramline --help`",
            id="unknown command",
        ),
        pytest.param(["--frob"], "error: No such option: --frob; see `vramline --help`", id="unknown option"),
        pytest.param(
            ["config", "show", "--frob"],
            "error: No such option: --frob; see `vramline config show --help`",
            id="unknown option of a command",
        ),
    ],
)
def test_a_wrong_call_is_one_line_that_says_where_help_is(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    assert capsys.readouterr() == ("", f"{line}\n")


@pytest.mark.parametrize(
    ("error", "status", "lines"),
    [
        pytest.param(
            mistake("gpus"), 2, ["error: pod ns/p: gpus = 'x': is wrong; accepted: y"], id="wrong input"
        ),
        pytest.param(
            MistakesError(subject="file", mistakes=(mistake("a"), mistake("b"))),
            2,
            [
                "error: pod ns/p: a = 'x': is wrong; accepted: y",
                "error: pod ns/p: b = 'x': is wrong; accepted: y",
            ],
            id="several mistakes",
        ),
        pytest.param(
            TransientError("server is away"), 1, ["error: server is away"], id="the world was not ready"
        ),
        pytest.param(
            InvariantError("books differ"),
            1,
            ["error: books differ; this is a mistake in vramline itself, please report it"],
            id="our own mistake",
        ),
        pytest.param(
            RequestError(subject="pod a\nb\x1b[31m", problem="is wrong"),
            2,
            ["error: pod a b\ufffd[31m: is wrong"],
            id="a hostile name stays on its line and changes no colour",
        ),
        pytest.param(KeyboardInterrupt(), 130, [], id="interrupted"),
        pytest.param(typer.Exit(1), 1, [], id="a check that failed"),
    ],
)
def test_an_error_becomes_a_status_and_lines(
    error: BaseException,
    status: int,
    lines: list[str],
    register: Callable[[Callable[[], None]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def boom() -> None:
        """Go off."""
        raise error

    register(boom)

    assert main(["boom"]) == status
    assert capsys.readouterr() == ("", "".join(f"{line}\n" for line in lines))


def test_help_imports_nothing_heavy() -> None:
    script = "import sys; from vramline.cli.main import main; main(['--help']); print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert not {"numpy", "msgspec", "rich", "yaml", "structlog"} & set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    script = (
        "import sys, vramline; print(sorted(name for name in sys.modules if name.startswith('vramline')))"
    )

    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert done.stdout == "['vramline']\n"


def test_a_closed_pipe_is_quiet() -> None:
    with subprocess.Popen([*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaints = process.stderr.read()

    assert (process.returncode, complaints) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, "--help"], check=False, stdout=full, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr) == (1, b"error: [Errno 28] No space left on device\n")


def test_a_terminal_without_unicode_gets_escapes_instead_of_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "config", "show", "--config", str(tmp_path / "−.yaml")],
        check=False,
        capture_output=True,
        env={"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
    )

    assert done.returncode == 2
    assert b"\\u2212.yaml: cannot be read" in done.stderr
    assert done.stderr.count(b"\n") == 1
