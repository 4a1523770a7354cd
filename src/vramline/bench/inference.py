"""How long the Python API takes to choose a node of a cluster that was read, and what it starts for it.

An audit hook of the interpreter counts every process and every connection: there must be none.
"""

import statistics
import sys
import time
from collections.abc import Callable

import msgspec

from vramline.bench.decide import peak_rss_mib
from vramline.bench.estimate import read_measured_models
from vramline.bench.manifests import ClusterShape, cluster_objects
from vramline.inference.discovery import (
    find_best_node_for_deployment,
    get_cluster_gpu_status,
    get_node_gpu_summaries,
)
from vramline.inference.estimate import Plan
from vramline.inference.gpu_cluster import GpuCluster
from vramline.inference.source import model_of_config
from vramline.wire.kubernetes import NodeObject, PodObject
from vramline.wire.report_v1alpha1 import GpuReport, decode_report

__all__ = ["InferenceFigures", "QuestionFigures", "Watch", "measure_inference"]

_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_PROCESSES = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system"}
)
_CONNECTIONS = frozenset({"socket.connect", "socket.getaddrinfo"})
_AGE_S = 10.0


class QuestionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One question, asked again and again: CPU time of one answer."""

    question: str
    answer: str
    """Of the last time, for people."""
    p50_ms: float
    p99_ms: float


class InferenceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All questions about one cluster."""

    nodes: int
    gpus_per_node: int
    pods: int
    build_ms: float
    """From decoded API objects to a cluster that can be asked."""
    questions: list[QuestionFigures]
    processes: int
    """Started while it was asked."""
    connections: int
    peak_rss_mib: int


class Watch:
    """Counts what the interpreter reports while it is on. A hook cannot be taken away again."""

    def __init__(self) -> None:
        self.on = False
        self.processes = self.connections = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _arguments: object) -> None:
        if self.on:
            self.processes += event in _PROCESSES
            self.connections += event in _CONNECTIONS


def measure_inference(shape: ClusterShape, *, rounds: int = 50) -> InferenceFigures:
    """Ask every question `rounds` times of a cluster that is made from a seed."""
    nodes, reports, pods = _read(shape)
    began = time.process_time()
    seen_at = max((report.observed_at or 0.0 for report in reports.values()), default=0.0)
    cluster = GpuCluster(nodes, reports, now=seen_at + _AGE_S)
    cluster.add_pods(pods, [])
    built = time.process_time() - began
    watch = Watch()
    watch.on = True
    told = [_ask(name, question, rounds) for name, question in _questions(cluster).items()]
    watch.on = False
    return InferenceFigures(
        nodes=shape.nodes,
        gpus_per_node=shape.gpus,
        pods=shape.pods,
        build_ms=round(built * 1e3, 1),
        questions=told,
        processes=watch.processes,
        connections=watch.connections,
        peak_rss_mib=peak_rss_mib(),
    )


def _questions(cluster: GpuCluster) -> dict[str, Callable[[], object]]:
    model = model_of_config(read_measured_models()[_MODEL], subject=_MODEL, name=_MODEL)
    plan = Plan(context=8192, concurrency=4)
    best = find_best_node_for_deployment
    return {
        "1 idle GPU": lambda: best(cluster=cluster),
        "4 idle GPUs": lambda: best(4, cluster=cluster),
        "20Gi on 1 GPU": lambda: best(gpu_memory="20Gi", cluster=cluster),
        "an 8B model, tp 2": lambda: best(2, model=model, plan=plan, cluster=cluster),
        "summaries": lambda: len(get_node_gpu_summaries(cluster=cluster)),
        "every GPU": lambda: len(get_cluster_gpu_status(cluster=cluster)),
    }


def _ask(name: str, question: Callable[[], object], rounds: int) -> QuestionFigures:
    times, answer = [], None
    for _ in range(rounds):
        began = time.process_time()
        answer = question()
        times.append((time.process_time() - began) * 1e3)
    times.sort()
    return QuestionFigures(
        question=name,
        answer=str(answer),
        p50_ms=round(statistics.median(times), 2),
        p99_ms=round(times[min(len(times) - 1, int(len(times) * 0.99))], 2),
    )


def _read(shape: ClusterShape) -> tuple[list[NodeObject], dict[str, GpuReport], list[PodObject]]:
    nodes: list[NodeObject] = []
    reports: dict[str, GpuReport] = {}
    pods: list[PodObject] = []
    for document in cluster_objects(shape):
        match document["kind"]:
            case "Node":
                nodes.append(msgspec.convert(document, NodeObject))
            case "GpuReport":
                reports[document["metadata"]["name"]] = decode_report(document)
            case _:
                pods.append(msgspec.convert(document, PodObject))
    return nodes, reports, pods
