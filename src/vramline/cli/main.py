"""The command `vramline`: finds a command's module when it is called, and turns errors into one line each.

To add a command, write a module in this folder with `app = new_app()` and `@app.command()` functions, and
add one line to `COMMANDS`. A module may hold one command, several (`cluster`), or a group of its own, which
needs an `@app.callback()` (`config`). Nothing of a command is imported before it is called, so that
`vramline --help` stays quick. A command returns nothing; another exit status is `raise typer.Exit(1)`.

Exit status: 0 done, 1 failed or not as it should be, 2 the call or its input is wrong, 130 interrupted.
"""

import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from vramline import __version__
from vramline.cli.plain_options import take_plain_options
from vramline.cli.text import one_line
from vramline.errors import InvariantError, MistakesError, RequestError, VramlineError

__all__ = ["COMMANDS", "Command", "main", "run"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_PIPE_CLOSED = 141  # 128 + SIGPIPE


class Command(NamedTuple):
    """A command, the module that holds it, and its line in the list."""

    name: str
    module: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command("demo", "vramline.cli.demo", "Run an embedded cluster: no Kubernetes, no GPU."),
    Command("simulate", "vramline.cli.simulate", "Place pods from Kubernetes manifests, and say why."),
    Command("scheduler", "vramline.cli.scheduler", "Serve kube-scheduler's extender calls for a cluster."),
    Command("agent", "vramline.cli.agent", "Watch this node's GPUs, and report what they say."),
    Command("reserve", "vramline.cli.reserve", "Hold a GPU in a reservation pod, and say which it is."),
    Command("top", "vramline.cli.top", "Watch the cluster live: GPUs, pods that wait, and why."),
    Command("gpus", "vramline.cli.cluster", "List every GPU: total, held, used, unmanaged, releasing, free."),
    Command("nodes", "vramline.cli.cluster", "List every node and what its GPUs have left."),
    Command("explain", "vramline.cli.cluster", "Say why a pod is where it is, or why it is pending."),
    Command("estimate", "vramline.cli.estimate", "Say how much VRAM a model needs, line by line."),
    Command("fit", "vramline.cli.fit", "Say where a model fits now, why not, and what would help."),
    Command(
        "deploy", "vramline.cli.deploy", "Deploy a model through OME, with the VRAM it needs held for it."
    ),
    Command("doctor", "vramline.cli.doctor", "Check a cluster, and say what to do where something is wrong."),
    Command("install", "vramline.cli.install", "Print what makes a cluster use Vramline."),
    Command("bench", "vramline.cli.bench", "Measure the product's own code."),
    Command("config", "vramline.cli.config", "Show the settings in force and where each came from."),
)


class _LazyGroup(TyperGroup):
    """Lists every command from the table, and imports the module of the one that is called."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 — passed on to typer as they are
        super().__init__(**attributes)
        self.commands = {entry.name: TyperCommand(entry.name, help=entry.summary) for entry in COMMANDS}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 — typer hides these types
        for entry in COMMANDS:
            if entry.name == args[0]:
                self.commands[entry.name] = _load(entry)
        return super().resolve_command(ctx, args)


def _load(entry: Command) -> Any:  # noqa: ANN401 — typer hides the type
    """Import a command's module and return the command in it, or the module's whole group."""
    gc.disable()  # hardly anything that is imported becomes garbage
    try:
        found = get_command(importlib.import_module(entry.module).app)
    finally:
        gc.enable()
    take_plain_options(found)
    if not isinstance(found, TyperGroup):
        return found
    found.no_args_is_help = False  # a call without a command is a mistake of one line, as any other
    return found.commands.get(entry.name, found)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 — typer's callbacks take the value alone
    if wanted:
        typer.echo(f"vramline {__version__}")
        raise typer.Exit


_app = typer.Typer(
    cls=_LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_app.callback(invoke_without_command=True, epilog="`vramline COMMAND --help` shows options and examples.")
def _vramline(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 — the callback has acted on it
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Place GPU pods where the VRAM really is, and say why."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run() -> None:
    """Entry point of the installed command. A terminal without UTF-8 gets escapes, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status. Wrong input never ends in a traceback."""
    try:
        return _call(arguments)
    except BrokenPipeError:
        _drop_output()
        return _PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except (VramlineError, typer.TyperException, OSError) as problem:
        if isinstance(problem, OSError):
            _drop_output()  # it may be the output that failed, as on a full disk
        status, lines = _judge(problem)
        for line in lines:
            typer.echo(f"error: {one_line(line)}", err=True)
        return status


def _call(arguments: Sequence[str]) -> int:
    """Parse and run. What was printed is flushed here, so that a closed pipe shows here too."""
    command = get_command(_app)
    take_plain_options(command)
    try:
        with command.make_context("vramline", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    finally:
        sys.stdout.flush()
    return 0


def _judge(problem: Exception) -> tuple[int, list[str]]:
    """Return the exit status that an error leads to, and what to say."""
    match problem:
        case typer.TyperException():
            context = getattr(problem, "ctx", None)
            path = "vramline" if context is None else context.command_path
            return 2, [f"{problem.format_message().rstrip('.')}; see `{path} --help`"]
        case MistakesError():
            return 2, [str(mistake) for mistake in problem.mistakes]
        case RequestError():
            return 2, [str(problem)]
        case InvariantError():
            return 1, [f"{problem}; this is a mistake in vramline itself, please report it"]
        case _:
            return 1, [str(problem)]


def _drop_output() -> None:
    """Let the interpreter's last flush go nowhere instead of complaining."""
    with contextlib.suppress(io.UnsupportedOperation):  # a test's output has no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
