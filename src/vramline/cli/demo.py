"""`vramline demo`: the embedded cluster, alive or telling its five stories."""

import random
import time
from typing import Annotated

import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.output import get_console
from vramline.cli.settings_file import ConfigOption, load_settings
from vramline.cli.source import is_cluster_configured
from vramline.cli.text import printable
from vramline.demo.life import Happening, LivingCluster
from vramline.demo.machines import MAX_NODES, build_nodes
from vramline.demo.server import DemoClock, run_demo
from vramline.demo.stories import play_stories
from vramline.explain.history import History
from vramline.scheduler.keeping import Keeper
from vramline.scheduler.listen import open_socket

__all__ = ["app"]

app = new_app()

_SAMPLE_S = 2.0
"""From one sample of the cards for the history to the next."""

_STYLES = {
    "bound": "green",
    "pending": "yellow",
    "releasing": "cyan",
    "released": "cyan",
    "unmanaged": "magenta",
    "gave up": "yellow",
}


@app.command(
    epilog=examples(
        "vramline demo",
        "vramline demo --once",
        "vramline demo --nodes 12 --speed 5 --seed 7",
        "vramline demo --listen 127.0.0.1:9000 --quiet",
    )
)
def demo(  # noqa: PLR0913 — one parameter an option
    *,
    once: Annotated[bool, typer.Option("--once", help="Play the five stories and exit.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything that happens.")] = 1,
    nodes: Annotated[int, typer.Option(help="How many nodes.", min=1, max=MAX_NODES)] = 4,
    speed: Annotated[
        float, typer.Option(help="How many times faster than the wall clock.", min=0.1, max=100.0)
    ] = 1.0,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Loopback address to serve on.  [default: 127.0.0.1:8780]"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print what happens.")] = False,
    config: ConfigOption = None,
) -> None:
    """Run an embedded cluster with pods that come and go, and serve it on loopback until Ctrl-C.

    No Kubernetes and no GPU are needed; pods are placed by the same engine as in production.
    """
    if once:
        _play_stories()
        return
    settings = load_settings(config, {"listen": listen})
    life = LivingCluster(
        build_nodes(nodes),
        dice=random.Random(seed),  # noqa: S311 — a story, not a secret
        clock=DemoClock(speed),
        history=History(),
        settings=settings,
    )
    keeper = Keeper(life.cluster, life.history, settings, every_s=_SAMPLE_S)
    with open_socket(settings.listen) as listener:
        host, port = listener.getsockname()[:2]
        _greet(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", nodes, len(life.cards))
        run_demo(life, listener, keeper, speed=speed, tell=_say_nothing if quiet else _tell)
    typer.echo("stopped")


def _greet(address: str, nodes: int, cards: int) -> None:
    found = address == "127.0.0.1:8780" and not is_cluster_configured()
    server = "" if found else f" --server http://{address}"
    typer.echo(f"vramline demo: {nodes} nodes, {cards} GPUs, serving http://{address}")
    typer.echo("open that address in a browser; in another terminal:")
    for command, what in (
        ("top", "GPUs and pods, live"),
        ("gpus --watch", "every GPU, live"),
        ("nodes", "every node"),
        ("explain POD", "why a pod is where it is, or pending"),
    ):
        typer.echo(f"  vramline {command + server:<{14 + len(server)}}  {what}")
    typer.echo(f"  curl -s http://{address}/snapshot | vramline simulate -f -")
    typer.echo("Ctrl-C stops it\n")


def _tell(happening: Happening) -> None:
    """Print one line; a terminal cuts it at its edge, a pipe gets all of it."""
    from rich.text import Text  # noqa: PLC0415 — as everywhere in this package, when it is printed with

    clock = time.strftime("%H:%M:%S", time.localtime(happening.at))
    line = Text(f"{clock} ", style="dim")
    line.append(f"{happening.what:<10} ", style=_STYLES.get(happening.what, ""))
    line.append(f"{printable(happening.who):<20} ", style="bold")
    line.append(printable(happening.text), style="not dim")
    get_console().print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _say_nothing(_happening: Happening) -> None:
    """Quiet."""


def _play_stories() -> None:
    """Print every story; exit 1 if any of them did not come out as it should."""
    wrong = 0
    for played in play_stories():
        typer.secho(played.title, bold=True)
        for line in played.lines:
            typer.echo(printable(line))
        typer.echo()
        wrong += not played.passed
    if wrong:
        typer.echo(f"{wrong} of the stories did not come out as they should; see the lines with ✗")
        raise typer.Exit(1)
    typer.echo("all stories came out right")
