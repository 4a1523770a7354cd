"""`vramline install`: what makes a cluster use Vramline, as manifests or as a Helm chart."""

from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from vramline import __version__
from vramline.cli.apps import examples, new_app
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.errors import RequestError
from vramline.settings import load
from vramline.wire.install_manifests import Choices, merge_values, render_manifests

__all__ = ["app", "render_installation"]

app = new_app()

_DEFAULTS = Choices()

AgentOption = Annotated[
    bool | None,
    typer.Option("--with-agent/--without-agent", help="Whether to print the node agent.  [default: without]"),
]
DashboardOption = Annotated[
    bool | None,
    typer.Option(
        "--with-dashboard/--without-dashboard",
        help="Whether people with a token see the dashboard from outside.  [default: without]",
        show_default=False,
    ),
]
HamiLockOption = Annotated[
    bool | None,
    typer.Option(
        "--with-hami-lock/--without-hami-lock",
        help="Whether HAMi's node lock is taken, which needs the right to patch nodes.  [default: without]",
        show_default=False,
    ),
]
PluginOption = Annotated[
    bool | None,
    typer.Option(
        "--with-plugin/--without-plugin",
        help="Whether the agent is also kubelet's device plugin.  [default: without]",
    ),
]


@app.command(
    epilog=examples(
        "vramline install | kubectl apply -f -",
        "vramline install --image registry.example/vramline:0.1.0 --kube-scheduler-version v1.33.4",
        "vramline install --realtime warning --margin 512Mi --exclude-namespace monitoring -o table",
        "vramline install --chart ./vramline-chart",
    )
)
def install(  # noqa: PLR0913 — one parameter an option
    *,
    namespace: Annotated[str, typer.Option(help="Where Vramline's own objects go.")] = _DEFAULTS.namespace,
    with_namespace: Annotated[
        bool,
        typer.Option("--with-namespace/--without-namespace", help="Whether to print the Namespace itself."),
    ] = True,
    with_agent: AgentOption = None,
    with_plugin: PluginOption = None,
    with_dashboard: DashboardOption = None,
    with_hami_lock: HamiLockOption = None,
    image: Annotated[str | None, typer.Option(help="Image of Vramline.", show_default=False)] = None,
    replicas: Annotated[
        int | None, typer.Option(help="Scheduler pods, one of which leads.  [default: 2]", min=1, max=9)
    ] = None,
    kube_scheduler_image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Image of kube-scheduler, without its version.")
    ] = None,
    kube_scheduler_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version of kube-scheduler: that of the cluster.")
    ] = None,
    scheduler_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What pods say in schedulerName.  [default: vramline]")
    ] = None,
    realtime: Annotated[
        str | None, typer.Option(metavar="MODE", help="strict, warning or disabled.", show_default=False)
    ] = None,
    policy: Annotated[str | None, typer.Option(help="How nodes are ranked.", show_default=False)] = None,
    margin: Annotated[
        str | None, typer.Option(metavar="MIB", help="Memory of each card that is never promised.")
    ] = None,
    exclude_namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE", help="Pods there are left alone; may be repeated."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the Helm chart into a new folder and print nothing."),
    ] = None,
    output: OutputOption = OutputFormat.YAML,
) -> None:
    """Print the manifests that make a cluster use Vramline; nothing is changed by this command.

    The same objects come from the Helm chart, which --chart writes: then choices are Helm values.
    """
    choices = Choices(
        namespace=namespace,
        with_namespace=with_namespace,
        with_agent=with_agent,
        with_plugin=with_plugin,
        with_dashboard=with_dashboard,
        with_hami_lock=with_hami_lock,
        image=image,
        replicas=replicas,
        kube_scheduler_image=kube_scheduler_image,
        kube_scheduler_version=kube_scheduler_version,
        scheduler_name=scheduler_name,
        excluded_namespaces=tuple(exclude_namespace or ()),
        settings=_read_settings({"realtimeMode": realtime, "policy": policy, "margin": margin}),
    )
    if chart is None:
        _print_documents(render_installation(choices), output)
    else:
        _write_chart(chart, choices)


def _read_settings(flags: Mapping[str, str | None]) -> dict[str, str]:
    """Return the settings that were given, once all of them are known to be right."""
    load(None, {}, flags)
    return {name: value for name, value in flags.items() if value is not None}


def render_installation(choices: Choices) -> list[str]:
    """Return every object that is installed, as YAML, in the order in which it is applied."""
    files = _read_chart()
    values = merge_values(yaml.safe_load(files["values.yaml"]), choices)
    return render_manifests(files, values, namespace=choices.namespace, version=__version__)


def _read_chart() -> dict[str, str]:
    return dict(_chart_files(resources.files("vramline") / "install"))


def _chart_files(folder: Traversable, path: str = "") -> Iterator[tuple[str, str]]:
    """Return every file of the chart with its path in it."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _chart_files(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry.read_text(encoding="utf-8")


def _write_chart(folder: Path, choices: Choices) -> None:
    if choices != _DEFAULTS:
        raise RequestError(
            subject="command line",
            field="--chart",
            value=str(folder),
            problem="is given together with choices that only the printed manifests take",
            accepted="--chart alone; give choices to helm with --set or --values",
        )
    if folder.exists():
        raise RequestError(
            subject="command line",
            field="--chart",
            value=str(folder),
            problem="is there already; it is left alone",
        )
    for path, text in _read_chart().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def _print_documents(documents: list[str], output: OutputFormat) -> None:
    """Print YAML with its comments, a JSON list that kubectl takes, or a table of what there is."""
    if output is OutputFormat.YAML:
        typer.echo("---\n".join(documents), nl=False)
        return
    objects = [yaml.safe_load(document) for document in documents]
    print_data(
        {"apiVersion": "v1", "kind": "List", "items": objects},
        output,
        table=lambda: print_table(("kind", "namespace", "name"), [_row(each) for each in objects]),
    )


def _row(each: dict[str, Any]) -> tuple[str, str, str]:
    metadata = each["metadata"]
    return each["kind"], metadata.get("namespace", ""), metadata["name"]
