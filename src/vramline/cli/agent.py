"""`vramline agent`: the program on every node with GPUs."""

import asyncio
import contextlib
import os
import random
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from vramline.agent.daemon import AgentOptions, AgentProcess
from vramline.agent.listen import open_metrics_socket
from vramline.agent.node_check import read_node_check
from vramline.agent.once import look_once
from vramline.agent.platforms import name_platform
from vramline.agent.reporting import NodeFacts
from vramline.agent.stream import StreamRules
from vramline.cli.agent_table import print_report
from vramline.cli.apps import examples, new_app
from vramline.cli.output import OutputFormat, OutputOption, print_data
from vramline.cli.settings_file import EVERY_SETTING, ConfigOption, load_settings, read_setting_flags
from vramline.errors import RequestError
from vramline.kube.client import KubeClient
from vramline.kube.target import Target, find_target
from vramline.probes.choose import choose_probes
from vramline.probes.device import DeviceProbe
from vramline.probes.options import ProbeOptions
from vramline.settings import Address, LogLevel, Settings
from vramline.settings.values import as_address
from vramline.telemetry.logs import configure
from vramline.wire.report_v1alpha1 import encode_report

__all__ = ["DEVICE_PLUGINS", "app"]

app = new_app()

OnceOption = Annotated[
    bool, typer.Option("--once", help="Look once, print what was seen, and end. Needs no cluster.")
]
NodeOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Name of this node.  [default: NODE_NAME, else the host's]", show_default=False
    ),
]
SchedulerOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Stream to every address behind this name; may be repeated.  [default: nowhere]",
        show_default=False,
    ),
]
IntervalOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="From one look to the next.  [default: 1s]")
]
ReportIntervalOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Report at least this often.  [default: 30s]")
]
LibraryOption = Annotated[
    str | None, typer.Option(metavar="PATH", help="NVML library or its folder.  [default: it is found]")
]
MetricsOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS:PORT", help="Serve /metrics and /healthz.  [default: 127.0.0.1:8781]"),
]
SocketOption = Annotated[Path, typer.Option(metavar="SOCKET", help="kubelet's pod resources; may be absent.")]
PluginsOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="kubelet's device plugins; only with backend plugin.")
]
TokenOption = Annotated[
    Path, typer.Option(metavar="FILE", help="Token for the streams, for the audience vramline.")
]
AuthorityOption = Annotated[Path, typer.Option(metavar="FILE", help="Whom to trust as a scheduler.")]
KubeconfigOption = Annotated[
    Path | None, typer.Option(help="Cluster to report to; inside a pod its own.", show_default=False)
]
ContextOption = Annotated[str, typer.Option(help="Context of the kubeconfig.", show_default=False)]
VerbosityOption = Annotated[
    int | None, typer.Option("--v", help="0 to 10; from 4 on debug lines are logged.", show_default=False)
]

_POD_RESOURCES = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""Where every kubelet looks for plugins; it cannot be told otherwise."""
_TOKEN = Path("/var/run/secrets/vramline/token")
_AUTHORITY = Path("/etc/vramline-ca/ca.crt")


@app.command(
    context_settings=EVERY_SETTING,
    epilog=examples(
        "vramline agent --once",
        "vramline agent --once -o json --library /usr/lib/aarch64-linux-gnu/nvidia",
        "vramline agent --node gpu-7 --scheduler vramline-agents.vramline-system.svc:8444",
    ),
)
def agent(  # noqa: PLR0913 — one parameter an option
    ctx: typer.Context,
    *,
    once: OnceOption = False,
    output: OutputOption = OutputFormat.TABLE,
    node: NodeOption = "",
    scheduler: SchedulerOption = None,
    interval: IntervalOption = None,
    report_interval: ReportIntervalOption = None,
    library: LibraryOption = None,
    metrics_listen: MetricsOption = None,
    pod_resources: SocketOption = _POD_RESOURCES,
    device_plugins: PluginsOption = DEVICE_PLUGINS,
    token_file: TokenOption = _TOKEN,
    ca_file: AuthorityOption = _AUTHORITY,
    config: ConfigOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    verbosity: VerbosityOption = None,
) -> None:
    """Watch the GPUs of this node: report memory, processes and health, and stream every sample.

    Every setting of docs/settings.md is an option too.
    """
    flags = read_setting_flags(ctx.args) | {
        "sampleInterval": interval,
        "reportInterval": report_interval,
        "nvmlLibrary": library,
        "metricsListen": metrics_listen,
        "verbosity": verbosity,
    }
    settings = load_settings(config, flags)
    level = LogLevel.WARNING if once else settings.log_level
    configure(level=level, log_format=settings.log_format, verbosity=settings.verbosity)
    facts = NodeFacts(
        node=node or os.environ.get("NODE_NAME") or socket.gethostname(),
        platform=name_platform(os.uname().machine),
        realtime_check=read_node_check(os.environ),
    )
    if once:
        report = asyncio.run(look_once(facts, _probes(settings)))
        print_data(encode_report(report), output, table=lambda: print_report(report))
        return
    options = AgentOptions(
        facts=facts,
        schedulers=tuple(_read_scheduler(each) for each in scheduler or ()),
        stream=StreamRules(token_file=token_file, ca_file=ca_file),
        pod_resources=pod_resources,
        device_plugins=device_plugins,
    )
    _run(settings, options, find_target(os.environ, kubeconfig=kubeconfig, context=context))


def _run(settings: Settings, options: AgentOptions, target: Target) -> None:
    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with KubeClient(target, rng=random.Random()) as client:  # noqa: S311 — jitter, not secrets
            await AgentProcess(settings, options, _probes(settings), client, listener).run(stop)

    with contextlib.ExitStack() as sockets:
        address = settings.metrics_listen
        listener = None if address is None else sockets.enter_context(open_metrics_socket(address))
        asyncio.run(work())


def _probes(settings: Settings) -> tuple[DeviceProbe, ...]:
    library = Path(settings.nvml_library) if settings.nvml_library else None
    return choose_probes(ProbeOptions(library=library, host_reserve=settings.host_reserve))


def _read_scheduler(text: str) -> Address:
    try:
        return as_address(text)
    except ValueError as wrong:
        raise RequestError(
            subject="--scheduler",
            value=text,
            problem=str(wrong),
            accepted="HOST:PORT, such as vramline-agents.vramline-system.svc:8444",
        ) from None
