"""`vramline top`: the cluster live in a terminal."""

import sys
from typing import Annotated

import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.client import ServerOption
from vramline.cli.source import ContextOption, KubeconfigOption, open_source
from vramline.errors import RequestError

__all__ = ["app"]

app = new_app()


@app.command(epilog=examples("vramline top", "vramline top --server 127.0.0.1:8780 --interval 0.5"))
def top(
    *,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between refreshes.", min=0.2, max=3600.0)
    ] = 1.0,
    server: ServerOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
) -> None:
    """Watch the cluster live: every GPU as a bar, pods that wait first, and why the chosen one does.

    Keys: arrows choose a pod, g and n show GPUs or nodes, / filters, space pauses, q leaves.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RequestError(
            subject="vramline top",
            problem="needs a terminal",
            accepted="`vramline gpus`, `vramline nodes` and `vramline explain POD` print the same",
        )
    from vramline.cli.top_view import TopView  # noqa: PLC0415 — textual costs a third of a second

    with open_source(server, kubeconfig, context) as source:
        view = TopView(source, every_s=interval)
        view.run()
    if view.return_code:
        raise typer.Exit(view.return_code)
