"""`vramline scheduler`: the extender for a real cluster."""

import contextlib
import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from vramline.agent.listen import open_metrics_socket
from vramline.cli.apps import examples, new_app
from vramline.cli.settings_file import EVERY_SETTING, ConfigOption, load_settings, read_setting_flags
from vramline.errors import RequestError
from vramline.kube.objects import ObjectKey
from vramline.kube.packed_objects import PACKED_NODES, PACKED_PODS
from vramline.kube.second_lister import SecondLister
from vramline.kube.target import Target, find_target
from vramline.scheduler.listen import (
    open_agent_socket,
    open_dashboard_socket,
    open_socket,
    open_webhook_socket,
)
from vramline.settings import Address, Settings

__all__ = ["app"]

app = new_app()

WebhookOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS:PORT", help="Serve the admission webhook there, over TLS.  [default: nowhere]"
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS:PORT", help="Let agents open their streams there, over TLS.  [default: nowhere]"
    ),
]
RealtimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE", help="strict, warning or disabled: how looks at cards count.  [default: strict]"
    ),
]
EnableOption = Annotated[
    str | None,
    typer.Option(metavar="BOOL", help="Switch the real-time check on or off.", show_default=False),
]
SchedulerNameOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What the webhook writes as schedulerName.  [default: vramline]"),
]
FollowOption = Annotated[
    str,
    typer.Option(
        metavar="NAMESPACE/NAME",
        help="Lead only while this Lease is held in the same pod, which POD_NAME names.",
        show_default=False,
    ),
]


@app.command(
    context_settings=EVERY_SETTING,
    epilog=examples(
        "vramline scheduler --config /etc/vramline/vramline.yaml",
        "vramline scheduler --config /etc/vramline/vramline.yaml --webhook-listen 0.0.0.0:8443",
        "vramline scheduler --kubeconfig ~/.kube/config --margin 256Mi --preemption off",
    ),
)
def scheduler(  # noqa: PLR0913 — one parameter an option
    ctx: typer.Context,
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
    webhook_listen: WebhookOption = None,
    agent_listen: AgentOption = None,
    realtime: RealtimeOption = None,
    enable_realtime_check: EnableOption = None,
    scheduler_name: SchedulerNameOption = None,
    lease: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="Lease by which replicas choose their leader.")
    ] = "vramline-system/vramline-scheduler",
    lease_duration: Annotated[
        int, typer.Option(metavar="SECONDS", min=2, help="How long a silent leader is waited for.")
    ] = 15,
    follow_lease: FollowOption = "",
    verbosity: Annotated[
        int | None, typer.Option("--v", help="0 to 10; from 4 on decisions are traced.", show_default=False)
    ] = None,
) -> None:
    """Answer kube-scheduler's extender calls for a real cluster, and bind GPU pods to cards.

    Every setting of docs/settings.md is an option too.
    """
    flags = read_setting_flags(ctx.args) | {
        "listen": listen,
        "webhookListen": webhook_listen,
        "agentListen": agent_listen,
        "realtimeMode": realtime,
        "enableRealtimeCheck": enable_realtime_check,
        "schedulerName": scheduler_name,
        "verbosity": verbosity,
    }
    settings = load_settings(config, flags)
    target = find_target(os.environ, kubeconfig=kubeconfig, context=context)
    own, beside = _read_lease("--lease", lease), None
    if follow_lease:
        beside = _read_lease("--follow-lease", follow_lease)
        if not os.environ.get("POD_NAME"):
            raise RequestError(
                subject="environment",
                field="POD_NAME",
                problem="is not set, but --follow-lease compares it with the Lease's holder",
            )
    _serve(settings, target, own, beside, lease_duration)


def _serve(
    settings: Settings, target: Target, lease: ObjectKey, beside: ObjectKey | None, lease_s: int
) -> None:
    """Find out what is wrong with the call, then list and load at the same time, then serve."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(open_socket(settings.listen))
        reviews = _listen(sockets, settings.webhook_listen, open_webhook_socket)
        streams = _listen(sockets, settings.agent_listen, open_agent_socket)
        figures = _listen(sockets, settings.scheduler_metrics_listen, open_metrics_socket)
        pages = _listen(sockets, settings.dashboard_listen, open_dashboard_socket)
        gc.disable()  # hardly anything of what comes becomes garbage; the scheduler enables it again
        second = _start_second(target)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads that we have no use for
        from vramline.telemetry.logs import configure  # noqa: PLC0415, I001 — the first that wants structlog
        from vramline.serve.scheduler import ElectionRules, SchedulerProcess  # noqa: PLC0415

        configure(level=settings.log_level, log_format=settings.log_format, verbosity=settings.verbosity)
        pod_name = os.environ.get("POD_NAME", "")
        election = ElectionRules(lease=lease, lease_s=lease_s, pod_name=pod_name, beside=beside)
        process = SchedulerProcess(settings, target, listener, election, reviews, streams, figures, pages)
        uvloop.run(process.run(second))


def _start_second(target: Target) -> SecondLister | None:
    """Start a process that helps with the start, if there is a core for it; before any thread or loop."""
    if len(os.sched_getaffinity(0)) > 1:
        with contextlib.suppress(OSError):  # no process, no memory: then this one lists by itself
            return SecondLister(target, (PACKED_NODES, PACKED_PODS))
    return None


def _listen(
    sockets: contextlib.ExitStack, address: Address | None, open_there: Callable[[Address], socket.socket]
) -> socket.socket | None:
    return None if address is None else sockets.enter_context(open_there(address))


def _read_lease(option: str, text: str) -> ObjectKey:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise RequestError(
            subject=option,
            value=text,
            problem="is not NAMESPACE/NAME",
            accepted="such as vramline-system/vramline-scheduler",
        )
    return ObjectKey(name, namespace)
