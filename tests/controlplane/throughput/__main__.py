"""`make bench-cluster`: throughput of a real kube-scheduler alone, with an idle extender, and with Vramline.

All in one run, same nodes, same pods, same profile (`percentageOfNodesToScore: 100`). The pods are there
before their scheduler starts, or with `--burst` come all at once while it runs; the clock runs from the tenth
part of them to the last, and once more from the start of kube-scheduler, or of creating them. CPU time per
pod is that of the first stretch, and is the figure that carries over to other machines.
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec

from controlplane.commands import CommandsMissingError, obtain_commands
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import Child, free_port, wait_until
from controlplane.throughput.populate import (
    add_nodes,
    add_pods,
    over_promised,
    remove_pods,
    start_anew,
)
from controlplane.throughput.watching import Progress, watch_pods
from controlplane.vramline import apply_crds, extender_configuration, run_scheduler

ALONE, IDLE, VRAMLINE = "kube-scheduler alone", "do-nothing extender", "Vramline"
UNHINTED = "Vramline, no hints"
CASES = (ALONE, IDLE, UNHINTED, VRAMLINE)
USUAL = (ALONE, IDLE, VRAMLINE)
BATCHES = {100: 1_000, 1_000: 1_000, 5_000: 1_500}
WANTED = 0.7
"""Of the do-nothing extender's throughput."""
_PATIENCE_S = 240.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One case at one size."""

    nodes: int
    pods: int
    case: str
    pods_per_s: float
    """From the tenth part on."""
    whole_per_s: float
    """From the start of kube-scheduler, or where pods come in a burst from the first of them."""
    scheduler_ms: float
    """CPU time per pod."""
    extender_ms: float | None
    apiserver_ms: float
    etcd_ms: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured; ratios are Vramline over the do-nothing extender or nothing, by nodes."""

    figures: list[Figures]
    ratios: dict[int, float]
    over_alone: dict[int, float]


def main() -> int:
    """Measure, print a table and JSON; 1 where Vramline falls short."""
    options = _read_options()
    try:
        commands = obtain_commands()
    except CommandsMissingError as error:
        _tell(f"error: {error}")
        return 2
    figures: list[Figures] = []
    for nodes in options.nodes:
        pods = options.pods or BATCHES.get(nodes, 300)
        with control_plane(commands) as plane, plane.client() as admin:
            apply_crds(admin)
            _tell(f"{nodes} nodes: creating them")
            add_nodes(plane.folder / "admin.kubeconfig", nodes)
            rounds = [
                [
                    _measure(plane, admin, case, Batch(nodes, pods, turn, options.burst))
                    for case in options.cases
                ]
                for turn in range(options.rounds)
            ]
        figures += [_median(list(same)) for same in zip(*rounds, strict=True)]
    report = Report(figures=figures, ratios=_ratios(figures, IDLE), over_alone=_ratios(figures, ALONE))
    _show(report)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 0 if all(ratio >= WANTED for ratio in report.ratios.values()) else 1


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(BATCHES), help="sizes to measure")
    parser.add_argument("--pods", type=int, help="pods a batch (default: 1,000; at 5,000 nodes 1,500)")
    parser.add_argument("--rounds", type=int, default=1, help="times; the median of each figure counts")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(USUAL), help="what to compare")
    parser.add_argument("--burst", action="store_true", help="create the pods while kube-scheduler runs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Batch:
    """What is scheduled in one go."""

    nodes: int
    pods: int
    turn: int
    is_burst: bool


def _measure(plane: ControlPlane, admin: httpx.Client, case: str, batch: Batch) -> Figures:
    namespace = f"batch-{CASES.index(case)}-{batch.turn}"
    kubeconfig = plane.folder / "admin.kubeconfig"
    admin.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}).raise_for_status()
    start_anew(kubeconfig, admin, batch.nodes)

    def create() -> None:
        add_pods(kubeconfig, namespace, batch.pods, scheduler="vramline")

    if not batch.is_burst:
        create()
    with _extender(plane, case, namespace) as (configuration, extender):
        before = len(plane.children)

        def processes() -> dict[str, Child]:
            names = {"kube-apiserver": "apiserver", "etcd": "etcd"}
            found = {names[child.name]: child for child in plane.children if child.name in names}
            if len(plane.children) > before:
                found["scheduler"] = plane.children[before]
            return found | ({} if extender is None else {"extender": extender})

        progress = Progress(batch.pods, processes)
        watch = watch_pods(kubeconfig, namespace, progress)
        started = time.perf_counter()
        scheduler = plane.start_scheduler(configuration)
        if batch.is_burst:
            started = time.perf_counter()
            create()
        progress.wait(_PATIENCE_S)
        watch.join()
        scheduler.stop()
        plane.children.remove(scheduler)
    if case in {VRAMLINE, UNHINTED} and (wrong := over_promised(admin, namespace)):
        raise SystemExit(f"error: {case} gave more than there is, or nothing: {', '.join(wrong[:10])}")
    remove_pods(admin, namespace)
    figures = _figures(progress, case, batch.nodes, started)
    _tell(f"{batch.nodes} nodes, {case}: {figures.pods_per_s} pods/s")
    return figures


@contextlib.contextmanager
def _extender(plane: ControlPlane, case: str, name: str) -> Iterator[tuple[dict[str, Any], Child | None]]:
    """Run what a case needs beside kube-scheduler, and return the configuration that makes it ask."""
    if case == ALONE:
        ignored = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["vramline.io/managed"]}}
        profile = {"schedulerName": "vramline", "pluginConfig": [ignored]}
        yield {"percentageOfNodesToScore": 100, "profiles": [profile]}, None
    elif case in {VRAMLINE, UNHINTED}:
        options = ["--nominate-ahead", "off"] if case == UNHINTED else []
        with run_scheduler(plane, name=f"vramline-{name}", options=options) as process:
            wait_until(lambda: process.client.get("/readyz").is_success, "Vramline to know all nodes")
            yield extender_configuration(process.port), process.child
    else:
        port = free_port()
        command = [sys.executable, "-m", "controlplane.throughput.idle_extender", "--port", str(port)]
        command += ["--kubeconfig", str(plane.folder / "admin.kubeconfig")]
        child = Child("idle-extender", command, plane.folder / f"idle-{name}.log")
        try:
            url = f"http://127.0.0.1:{port}/"
            wait_until(lambda: _answers(url), "the idle extender", children=(child,))
            yield extender_configuration(port), child
        finally:
            child.stop()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def _figures(progress: Progress, case: str, nodes: int, started: float) -> Figures:
    first, last = progress.first, progress.last
    assert first is not None
    assert last is not None
    counted = progress.pods - (progress.pods + 9) // 10
    cpu_ms = {
        name: round((used - first.cpu_s[name]) * 1_000 / counted, 2) for name, used in last.cpu_s.items()
    }
    return Figures(
        nodes=nodes,
        pods=progress.pods,
        case=case,
        pods_per_s=round(counted / (last.at - first.at), 1),
        whole_per_s=round(progress.pods / (last.at - started), 1),
        scheduler_ms=cpu_ms["scheduler"],
        extender_ms=cpu_ms.get("extender"),
        apiserver_ms=cpu_ms["apiserver"],
        etcd_ms=cpu_ms["etcd"],
    )


def _median(same: list[Figures]) -> Figures:
    def middle(field: str) -> float | None:
        values = [getattr(figures, field) for figures in same]
        return None if None in values else round(statistics.median(values), 2)

    names = ("pods_per_s", "whole_per_s", "scheduler_ms", "extender_ms", "apiserver_ms", "etcd_ms")
    return msgspec.structs.replace(same[0], **{name: middle(name) for name in names})


def _ratios(figures: list[Figures], other: str) -> dict[int, float]:
    rate = {(each.nodes, each.case): each.pods_per_s for each in figures}
    return {
        nodes: round(rate[nodes, VRAMLINE] / rate[nodes, other], 2)
        for nodes, case in rate
        if case == VRAMLINE and (nodes, other) in rate
    }


def _show(report: Report) -> None:
    _row("nodes", "pods", "", "pods/s", "from start", "scheduler", "extender", "API server", "etcd")
    for each in report.figures:
        costs = (each.scheduler_ms, each.extender_ms, each.apiserver_ms, each.etcd_ms)
        shown = ("-" if cost is None else f"{cost:.1f} ms" for cost in costs)
        rates = (f"{each.pods_per_s:.1f}", f"{each.whole_per_s:.1f}")
        _row(f"{each.nodes:,}", f"{each.pods:,}", each.case, *rates, *shown)
    for nodes, ratio in report.ratios.items():
        verdict = "enough" if ratio >= WANTED else "too little"
        _say(f"{nodes:,} nodes: Vramline / do-nothing extender = {ratio:.2f} ({verdict}: {WANTED} is wanted)")
    for nodes, ratio in report.over_alone.items():
        _say(f"{nodes:,} nodes: Vramline / kube-scheduler alone = {ratio:.2f}")


def _row(*cells: str) -> None:
    nodes, pods, case, *rest = cells
    _say(f"{nodes:>6} {pods:>6}  {case:<22}" + "".join(f"{cell:>12}" for cell in rest))


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 — a program's output


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
