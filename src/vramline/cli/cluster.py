"""`vramline gpus`, `vramline nodes`, `vramline explain`: what a scheduler, a demo or a cluster knows."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote

import msgspec
import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.client import ServerOption
from vramline.cli.output import OutputFormat, OutputOption, get_console, print_data
from vramline.cli.source import ContextOption, KubeconfigOption, Source, open_source
from vramline.errors import RequestError, VramlineError
from vramline.explain.cards import CardState, NodeState
from vramline.explain.history import DecisionRecord
from vramline.explain.pods import PodStory, PodView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["app"]

app = new_app()


class _Gpus(msgspec.Struct):
    at: float
    gpus: list[CardState]


class _Nodes(msgspec.Struct):
    at: float
    nodes: list[NodeState]


class _Pods(msgspec.Struct):
    pods: list[PodView]


class _Decisions(msgspec.Struct):
    decisions: list[DecisionRecord]


T = TypeVar("T")
Draw = Callable[[T, "Console"], "RenderableType"]

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh in place until Ctrl-C.")]
IntervalOption = Annotated[
    float, typer.Option(metavar="SECONDS", help="Time between refreshes.", min=0.2, max=3600.0)
]


@app.command(
    epilog=examples("vramline gpus", "vramline gpus --watch", "vramline gpus -o json --server 127.0.0.1:8780")
)
def gpus(
    *,
    watch: WatchOption = False,
    interval: IntervalOption = 1.0,
    server: ServerOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List every GPU: total, held, releasing, unmanaged, used and free memory in MiB.

    Releasing memory is part of held memory. A question mark is what nobody could tell.
    """
    source = open_source(server, kubeconfig, context)
    _show(
        "/api/v1/gpus", _Gpus, _draw_gpus, source=source, output=output, every_s=interval if watch else None
    )


@app.command(epilog=examples("vramline nodes", "vramline nodes --watch", "vramline nodes -o yaml"))
def nodes(
    *,
    watch: WatchOption = False,
    interval: IntervalOption = 1.0,
    server: ServerOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List every node: its GPUs (and devices advertised for them), and the sums over its GPUs in MiB."""
    source = open_source(server, kubeconfig, context)
    _show(
        "/api/v1/nodes",
        _Nodes,
        _draw_nodes,
        source=source,
        output=output,
        every_s=interval if watch else None,
    )


@app.command(
    epilog=examples(
        "vramline explain team-a/llm-0", "vramline explain llm-0", "vramline explain llm-0 -o json"
    )
)
def explain(
    pod: Annotated[
        str, typer.Argument(metavar="POD", help="namespace/name, or a name that only one pod has.")
    ],
    *,
    server: ServerOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Say why a pod is where it is, or why it is pending and what would change that."""
    from vramline.cli.pod_story import pod_story  # noqa: PLC0415 — rich costs 60 ms

    with open_source(server, kubeconfig, context) as client:
        key = pod if "/" in pod else _find_namespace(client, pod)
        namespace, _, name = key.partition("/")
        story = client.get(f"/api/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}", PodStory)
        _say_origin(client)

    def table() -> None:
        console = get_console()
        console.print(pod_story(story, width=console.width, plain=_is_plain(console)))

    print_data(story, output, table=table)


def _show(
    path: str,
    kind: type[T],
    draw: "Draw[T]",
    *,
    source: Source,
    output: OutputFormat,
    every_s: float | None,
) -> None:
    """Fetch and print once, or again and again in place."""
    with source as client:
        if every_s is None:
            data = client.get(path, kind)
            _say_origin(client)
            console = get_console()
            print_data(data, output, table=lambda: console.print(draw(data, console)))
        elif output is not OutputFormat.TABLE:
            raise RequestError(
                subject="--watch", value=output.value, problem="shows tables only", accepted="-o table"
            )
        else:
            _watch(lambda console: draw(client.get(path, kind), console), every_s)


def _say_origin(source: Source) -> None:
    """Data goes to standard output, so where it came from goes to standard error."""
    if source.origin():
        typer.echo(source.origin(), err=True)


def _watch(render: "Callable[[Console], RenderableType]", every_s: float) -> None:
    """Refresh until Ctrl-C, which is how one is meant to leave."""
    from rich.live import Live  # noqa: PLC0415 — as above

    console = get_console()
    try:
        with Live(render(console), console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                time.sleep(every_s)
                live.update(render(console), refresh=True)
    except KeyboardInterrupt:
        return


def _draw_gpus(data: _Gpus, console: "Console") -> "RenderableType":
    from vramline.cli.cluster_tables import gpus_table  # noqa: PLC0415 — as above

    return gpus_table(data.gpus, width=console.width, plain=_is_plain(console))


def _draw_nodes(data: _Nodes, console: "Console") -> "RenderableType":
    from vramline.cli.cluster_tables import nodes_table  # noqa: PLC0415 — as above

    return nodes_table(data.nodes, width=console.width, plain=_is_plain(console))


def _is_plain(console: "Console") -> bool:
    return console.encoding.lower().replace("-", "") != "utf8"


def _find_namespace(client: Source, name: str) -> str:
    """Return namespace/name of the one pod with this name: one that is there, or else one that was."""
    living = {view.pod for view in client.get("/api/v1/pods", _Pods).pods}
    found = sorted(key for key in living if key.partition("/")[2] == name)
    if not found:
        path = f"/api/v1/decisions?limit=1000&pod={quote(name, safe='')}"
        found = sorted({record.pod for record in client.get(path, _Decisions).decisions})
    if len(found) == 1:
        return found[0]
    if found:
        raise RequestError(
            subject="POD", value=name, problem="is in several namespaces", accepted=", ".join(found[:5])
        )
    raise VramlineError(
        f"no pod {name} in any namespace; `vramline explain NAMESPACE/NAME` names one exactly"
    )
