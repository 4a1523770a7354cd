"""`vramline scheduler`: the extender for a real cluster."""

import os
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from vramline.cli.apps import examples, new_app
from vramline.cli.settings_file import ConfigOption, load_settings
from vramline.errors import RequestError
from vramline.kube.objects import ObjectKey
from vramline.kube.target import find_target
from vramline.scheduler.listen import open_socket
from vramline.serve.scheduler import SchedulerProcess
from vramline.telemetry.logs import configure

__all__ = ["app"]

app = new_app()


@app.command(
    epilog=examples(
        "vramline scheduler --config /etc/vramline/vramline.yaml",
        "vramline scheduler --kubeconfig ~/.kube/config --listen 127.0.0.1:8780",
    )
)
def scheduler(
    *,
    config: ConfigOption = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Cluster to work for; inside a pod its own.", show_default=False)
    ] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.", show_default=False)] = "",
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Loopback address to serve on.  [default: 127.0.0.1:8780]"),
    ] = None,
    lease: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="Lease by which replicas choose their leader.")
    ] = "vramline-system/vramline-scheduler",
    verbosity: Annotated[
        int | None, typer.Option("--v", help="0 to 10; from 4 on decisions are traced.", show_default=False)
    ] = None,
) -> None:
    """Answer kube-scheduler's extender calls for a real cluster, and bind GPU pods to cards."""
    settings = load_settings(config, {"listen": listen, "verbosity": verbosity})
    configure(level=settings.log_level, log_format=settings.log_format, verbosity=settings.verbosity)
    target = find_target(os.environ, kubeconfig=kubeconfig, context=context)
    with open_socket(settings.listen) as listener:
        process = SchedulerProcess(settings, target, listener, _read_lease(lease))
        uvloop.run(process.run())


def _read_lease(text: str) -> ObjectKey:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise RequestError(
            subject="--lease",
            value=text,
            problem="is not NAMESPACE/NAME",
            accepted="such as vramline-system/vramline-scheduler",
        )
    return ObjectKey(name, namespace)
