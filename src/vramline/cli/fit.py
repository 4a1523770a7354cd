"""`vramline fit`: where a model fits now, why not, and what would help."""

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.client import ServerOption
from vramline.cli.model_options import ModelArgument, Serving, takes_serving
from vramline.cli.output import OutputFormat, OutputOption, print_data, print_table
from vramline.cli.settings_file import load_settings
from vramline.cli.source import KubeconfigOption, open_source
from vramline.cli.text import one_line
from vramline.errors import RequestError
from vramline.inference.fit import Bound, FitQuestion, Way, find_ways
from vramline.inference.fit_help import Help, find_help
from vramline.inference.source import load_model
from vramline.model.pod import HostNeeds, Toleration
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.files import read_paths
from vramline.simulate.options import options_from
from vramline.simulate.run import run_documents
from vramline.units import parse_quantity, quantity_to_mib

__all__ = ["app"]

app = new_app()


DegreeOption = Annotated[
    int | None,
    typer.Option(
        help="Only this degree of tensor parallelism.  [default: all]", min=1, max=1024, show_default=False
    ),
]
BoundOption = Annotated[Bound, typer.Option(help="Which figure of the estimate must fit.")]
CpuOption = Annotated[
    str | None, typer.Option(metavar="QUANTITY", help="CPU of its pod.", show_default=False)
]
MemoryOption = Annotated[
    str | None, typer.Option(metavar="QUANTITY", help="Host memory of its pod.", show_default=False)
]
SelectorOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Only nodes with this label; may be repeated.", show_default=False
    ),
]
TolerateOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="A taint that its pod tolerates; may be repeated.", show_default=False),
]
FileOption = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--file",
        metavar="PATH",
        help="Manifests instead of a cluster; may be repeated.",
        show_default=False,
    ),
]
KubeContextOption = Annotated[str, typer.Option(help="Context of the kubeconfig.", show_default=False)]


class FitReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every way to serve a model, and what would help where there is none."""

    model: str
    fits: bool
    bound: Bound
    ways: list[Way]
    helps: list[Help]


@app.command(
    epilog=examples(
        "vramline fit config.json",
        "vramline fit models/Llama-3.1-70B --context 16384 --concurrency 8 --tp 4",
        "kubectl get nodes,pods -A -o json | vramline fit config.json -f - -o json",
        "vramline fit config.json --node-selector models.ome.io/clusterbasemodel.llama=Ready --tolerate gpu",
    )
)
@takes_serving
def fit(  # noqa: PLR0913 — one parameter an option
    model: ModelArgument,
    *,
    serving: Serving,
    tp: DegreeOption = None,
    bound: BoundOption = Bound.HIGH,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    node_selector: SelectorOption = None,
    tolerate: TolerateOption = None,
    file: FileOption = None,
    server: ServerOption = None,
    kubeconfig: KubeconfigOption = None,
    kube_context: KubeContextOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Say which nodes, GPUs and degrees of tensor parallelism hold a model now, and what would help.

    Decides with the product's own engine on a cluster (--server or a kubeconfig, as `vramline gpus`) or on
    manifests (-f, as `vramline simulate`); pods that wait there are placed first. All GPUs of one way are of
    one kind and on one node. Exit status 1 where it fits nowhere.
    """
    question = FitQuestion(
        model=load_model(model),
        plan=serving.plan(tp=tp or 1),
        degrees=() if tp is None else (tp,),
        bound=bound,
        host=_host_needs(cpu, memory, node_selector or [], tolerate or []),
    )
    report = _answer(question, _read_cluster(file or [], server, kubeconfig, kube_context))
    print_data(report, output, table=lambda: _print_report(report))
    if not report.fits:
        raise typer.Exit(1)


def _answer(question: FitQuestion, cluster: EmbeddedCluster) -> FitReport:
    found = find_ways(question, cluster)
    fits = any(each.way.fits for each in found)
    return FitReport(
        model=question.model.name,
        fits=fits,
        bound=question.bound,
        ways=[each.way for each in found],
        helps=find_help(question, cluster, found),
    )


def _read_cluster(
    files: list[str], server: str | None, kubeconfig: Path | None, context: str
) -> EmbeddedCluster:
    """Return the cluster of manifests, or a copy of the one that is running."""
    options = options_from(load_settings(None, {}))
    if files:
        found = read_paths(files, stdin=sys.stdin.buffer, report=_say_nothing)
        if found.problems:
            raise found.problems[0]
        run = run_documents(found.documents, options)
    else:
        with open_source(server, kubeconfig, context) as source:
            snapshot = source.get("/snapshot", dict[str, Any])
            if source.origin():
                typer.echo(source.origin(), err=True)
        run = run_documents([("snapshot", snapshot)], options)
    for line in [*(str(problem) for problem in run.problems), *run.warnings]:
        typer.echo(f"warning: {one_line(line)}", err=True)
    return run.cluster


def _say_nothing(_done: int, _total: int) -> None:
    """Show no progress."""


def _host_needs(cpu: str | None, memory: str | None, selectors: list[str], tolerated: list[str]) -> HostNeeds:
    labels = {}
    for selector in selectors:
        key, equals, value = selector.partition("=")
        if not key or not equals:
            raise _wrong("--node-selector", selector, "is not KEY=VALUE", "pool=gpu")
        labels[key] = value
    try:
        cpu_milli = 0 if cpu is None else int(parse_quantity(cpu) * 1000)
    except ValueError as error:
        raise _wrong("--cpu", cpu or "", str(error), "4 or 3500m") from None
    try:
        memory_bytes = 0 if memory is None else quantity_to_mib(memory) * 2**20
    except ValueError as error:
        raise _wrong("--memory", memory or "", str(error), "64Gi") from None
    return HostNeeds(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        node_selector=labels,
        tolerations=tuple(Toleration(key, "Exists", "", "") for key in tolerated),
    )


def _wrong(option: str, value: str, problem: str, accepted: str) -> RequestError:
    return RequestError(subject="fit", field=option, value=value, problem=problem, accepted=accepted)


def _print_report(report: FitReport) -> None:
    rows = [
        (
            str(way.tp),
            way.card.model.removeprefix("NVIDIA ") or "GPU",
            f"{way.card.total_mib:,}",
            f"{way.need.low:,}",
            f"{way.need.expected:,}",
            f"{way.need.high:,}",
            f"{way.nodes_that_fit:,}",
            _where(way),
        )
        for way in report.ways
    ]
    typer.echo(f"{one_line(report.model)}: MiB on each GPU; the {report.bound} figure must fit.")
    print_table(
        ["tp", "card", "total", "low", "expected", "high", "nodes", "where, or why not"],
        rows,
        numbers=("tp", "total", "low", "expected", "high", "nodes"),
    )
    for each in report.helps:
        typer.echo(f"→ {one_line(each.sentence)}")
    if not report.fits and not report.helps:
        typer.echo("Nothing that was tried would help; not finding it proves nothing.")


def _where(way: Way) -> str:
    if not way.fits:
        return one_line(way.message)
    more = f" and {way.nodes_that_fit - 1:,} more" if way.nodes_that_fit > 1 else ""
    return f"{way.nodes[0]}: {', '.join(way.gpu_uuids)}{more}"
