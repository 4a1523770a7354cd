"""How long the simulator takes: a whole cluster as JSON in, the fate of every pod out."""

import time

import msgspec

from vramline.bench.decide import peak_rss_mib
from vramline.bench.manifests import ClusterShape, cluster_objects
from vramline.errors import InvariantError, RequestError
from vramline.model.rules import Rules
from vramline.simulate.files import read_text
from vramline.simulate.options import RunOptions
from vramline.simulate.outcome import Status
from vramline.simulate.run import run_documents

__all__ = ["SimulateFigures", "measure_simulate"]


class SimulateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    nodes: int
    gpus_per_node: int
    pods: int
    bound: int
    pending: int
    input_mib: float
    read_s: float
    """CPU time of decoding the input."""
    run_s: float
    """CPU time of building the cluster and placing every pod, with its explanation."""
    pod_us: float
    """`run_s` for each pod."""
    peak_rss_mib: int


def measure_simulate(shape: ClusterShape) -> SimulateFigures:
    """Run the simulator on a cluster that is made from a seed."""
    items = list(cluster_objects(shape))
    raw = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})
    del items
    began = time.process_time()
    documents = [_readable(found) for found in read_text(raw, "bench")]
    decoded = time.process_time()
    run = run_documents(documents, RunOptions(rules=Rules()))
    ended = time.process_time()
    if run.problems:
        raise InvariantError(f"the benchmark's own cluster is not accepted: {run.problems[0]}")
    statuses = [outcome.status for outcome in run.outcomes]
    return SimulateFigures(
        nodes=shape.nodes,
        gpus_per_node=shape.gpus,
        pods=shape.pods,
        bound=statuses.count(Status.BOUND),
        pending=statuses.count(Status.PENDING),
        input_mib=round(len(raw) / 2**20, 1),
        read_s=round(decoded - began, 2),
        run_s=round(ended - decoded, 2),
        pod_us=round((ended - decoded) * 1e6 / max(1, shape.pods), 1),
        peak_rss_mib=peak_rss_mib(),
    )


def _readable(found: tuple[str, object] | RequestError) -> tuple[str, object]:
    if isinstance(found, RequestError):
        raise InvariantError(f"the benchmark's own input cannot be read: {found}")
    return found
