"""`vramline doctor`: whether a cluster is as Vramline needs it."""

import asyncio
import os
from typing import Annotated

import msgspec
import typer
import yaml

from vramline.cli.apps import examples, new_app
from vramline.cli.install import render_installation
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.settings_file import ConfigOption, load_settings
from vramline.cli.source import ContextOption, KubeconfigOption
from vramline.kube.target import Target, find_target
from vramline.serve.doctor import Installation, examine_cluster
from vramline.serve.findings import Finding, Level
from vramline.serve.reading import open_client
from vramline.settings import Settings
from vramline.wire.install_manifests import Choices

__all__ = ["app"]

app = new_app()


class _Report(msgspec.Struct, frozen=True):
    server: str
    healthy: bool
    findings: list[Finding]


@app.command(
    epilog=examples(
        "vramline doctor", "vramline doctor --kubeconfig ~/.kube/config", "vramline doctor -o json"
    )
)
def doctor(
    *,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    namespace: Annotated[str, typer.Option(help="Where Vramline is installed.")] = "vramline-system",
    config: ConfigOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compare ledgers, pods, reports and cards, and check versions, rights, webhook, policies and leaders.

    Exits with 1 if anything is a problem; warnings alone are no failure. Nothing is changed.
    """
    settings = load_settings(config, {})
    target = find_target(os.environ, kubeconfig=kubeconfig, context=context)
    objects = [yaml.safe_load(text) for text in render_installation(Choices(namespace=namespace))]
    found = asyncio.run(_examine(target, settings, Installation(tuple(objects), namespace)))
    report = _Report(target.cluster.server, all(each.level is not Level.PROBLEM for each in found), found)
    print_data(report, output, table=lambda: _print(report))
    if not report.healthy:
        raise typer.Exit(1)


async def _examine(target: Target, settings: Settings, wanted: Installation) -> list[Finding]:
    async with open_client(target) as client:
        return await examine_cluster(client, settings, wanted)


def _print(report: _Report) -> None:
    typer.echo(f"{report.server}, looked at just now\n")
    rows = [(each.level, each.check, each.message, each.advice) for each in report.findings]
    print_table(("level", "check", "found", "what to do"), rows)
