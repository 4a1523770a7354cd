"""`vramline simulate`: place the pods of plain manifests and say why."""

import sys
from collections import Counter
from dataclasses import replace
from typing import Annotated

import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.output import OutputFormat, OutputOption, print_data
from vramline.cli.progress import Progress
from vramline.cli.settings_file import ConfigOption, load_settings
from vramline.cli.simulate_replay import replay
from vramline.cli.text import one_line
from vramline.errors import RequestError
from vramline.explain.trace import trace_lines
from vramline.model.ask import PolicyName
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.settings import Settings
from vramline.simulate.files import Input, read_paths
from vramline.simulate.options import options_from
from vramline.simulate.report import RunReport, report_run
from vramline.simulate.run import Run, run_documents
from vramline.wire.times import read_time

__all__ = ["app"]

_TRACE = 4
"""Verbosity from which every decision is traced."""
_MOST_LINES = 100
"""Errors or warnings printed one by one; `-o json` has all of them."""

app = new_app()


@app.command(
    epilog=examples(
        "vramline simulate -f cluster.yaml",
        "vramline simulate nodes/ pods.yaml --policy spread --realtime warning",
        "kubectl get nodes,pods -A -o json | vramline simulate -f - -o json",
        "vramline simulate -f cluster.yaml --v 4 2>&1 | grep GPU_FIT_CHECK",
        "curl -s 127.0.0.1:8780/snapshot | vramline simulate replay -",
    )
)
def simulate(  # noqa: PLR0913 — one parameter an option
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files or folders of manifests; - is standard input.", show_default=False),
    ] = None,
    *,
    file: Annotated[
        list[str] | None,
        typer.Option("-f", "--file", metavar="PATH", help="The same; may be repeated.", show_default=False),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"How nodes that fit are ranked: {', '.join(sorted(PolicyName))}.",
            show_default=False,
        ),
    ] = None,
    realtime: Annotated[
        str | None, typer.Option(metavar="MODE", help="strict, warning or disabled.", show_default=False)
    ] = None,
    enable_realtime_check: Annotated[
        str | None, typer.Option(metavar="BOOL", help="true or false.", show_default=False)
    ] = None,
    margin: Annotated[
        str | None, typer.Option(metavar="MIB", help="Never promised, on each card.", show_default=False)
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Instead of the newest time in the input.", show_default=False),
    ] = None,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="In JSON and YAML, list every node for every pod.")
    ] = False,
    v: Annotated[
        str | None, typer.Option("--v", metavar="N", help="4: trace decisions on stderr.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Place the pods of plain Kubernetes manifests on their nodes, and say why.

    Reads Node, Pod, Deployment, StatefulSet, ReplicaSet, Job, List, GpuReport and GpuLedger as YAML or
    JSON; other kinds are named and skipped. Pods are placed in order of creation, then of appearance;
    pods with a nodeName are there already. Exit status 0 however many pods are pending, 2 if an object
    was rejected or unreadable; the others are placed all the same.

    `vramline simulate replay FILE` makes the decisions of a snapshot again and says whether each came out
    the same; exit status 1 if one did not.
    """
    flags = {
        "policy": policy,
        "realtimeMode": realtime,
        "enableRealtimeCheck": enable_realtime_check,
        "margin": margin,
        "verbosity": v,
    }
    if paths is not None and paths[:1] == ["replay"]:
        replay(paths[1:], output)
        return
    settings = load_settings(config, flags)
    moment = None if now is None else read_time(now, subject="simulate", field="--now")
    found, run = _run(_check_paths([*(paths or ()), *(file or ())]), settings, moment, all_nodes=all_nodes)
    report = report_run(run)
    if report.pods or report.gpus or not found.problems:
        print_data(report, output, table=lambda: _print_tables(report))
    problems = [*found.problems, *run.problems]
    _tell(report, [str(problem) for problem in problems])
    if problems:
        raise typer.Exit(2)


def _print_tables(report: RunReport) -> None:
    from vramline.cli.simulate_tables import print_report  # noqa: PLC0415 — rich costs 60 ms that JSON need not pay

    print_report(report)


def _check_paths(paths: list[str]) -> list[str]:
    if not paths:
        raise RequestError(
            subject="simulate",
            problem="there is nothing to read",
            accepted="-f PATH (a file, a folder, or - for standard input)",
        )
    return paths


def _run(paths: list[str], settings: Settings, moment: float | None, *, all_nodes: bool) -> tuple[Input, Run]:
    """Read and run, with a progress bar for input that takes a while."""
    trace = settings.verbosity >= _TRACE
    with Progress(quiet=trace) as progress:
        found = read_paths(paths, stdin=sys.stdin.buffer, report=progress.stage("reading", least=2**21))
        options = replace(
            options_from(settings),
            now=moment,
            all_nodes=all_nodes,
            on_decision=_trace if trace else _look_away,
            report=progress.stage("placing", least=500),
        )
        return found, run_documents(found.documents, options)


def _look_away(_fleet: Fleet, _decision: Decision) -> None:
    """Trace nothing."""


def _trace(fleet: Fleet, decision: Decision) -> None:
    for line in trace_lines(fleet, decision):
        typer.echo(one_line(line), err=True)


def _tell(report: RunReport, problems: list[str]) -> None:
    """Say on standard error what is wrong, what is doubtful and what was not read."""
    _tell_all("error", problems)
    _tell_all("warning", report.warnings)
    if report.skipped:
        kinds = Counter(skipped.kind for skipped in report.skipped)
        words = ", ".join(f"{kind} ({count:,})" for kind, count in kinds.most_common())
        typer.echo(f"note: not read: {one_line(words)}", err=True)


def _tell_all(word: str, lines: list[str]) -> None:
    for line in lines[:_MOST_LINES]:
        typer.echo(f"{word}: {one_line(line)}", err=True)
    if len(lines) > _MOST_LINES:
        typer.echo(f"{word}: … and {len(lines) - _MOST_LINES:,} more; `-o json` lists all", err=True)
