"""Which GPUs a cluster has, which of them are idle, and the best node for an inference service.

The names, arguments and fields are those of the LLM inference autotuner's `gpu_discovery`; extras come last.
What nobody could tell is None, never 0, and never idle, except on a node where no pod asks for a GPU.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from vramline.errors import RequestError
from vramline.inference.card_kinds import CardKind
from vramline.inference.estimate import Model, Plan, estimate
from vramline.inference.gpu_cluster import GpuCluster, read_gpu_cluster
from vramline.inference.gpu_info import GPUInfo, NodeGPUSummary
from vramline.inference.gpu_view import GpuView, Need, by_index
from vramline.inference.other_eyes import Sources
from vramline.inference.source import load_model, model_of_config
from vramline.model.ask import MibSize, PolicyName, WholeSize
from vramline.model.pod import HostNeeds, Toleration
from vramline.model.rules import Rules
from vramline.units import MAX_MIB, Mib, parse_vram

__all__ = [
    "GPUInfo",
    "ModelSource",
    "NodeGPUSummary",
    "find_best_node_for_deployment",
    "get_cluster_gpu_status",
    "get_node_gpu_summaries",
    "read_model",
]

_MOST_GPUS = 1024
ModelSource = Model | Mapping[str, object] | str | Path
"""A model that was read, its parsed config.json, or what `vramline estimate` takes."""


def get_cluster_gpu_status(
    *,
    kubeconfig: str | Path | None = None,
    sources: Sources | None = None,
    cluster: GpuCluster | None = None,
) -> list[GPUInfo]:
    """Return every physical GPU of the cluster; raises where the cluster cannot be read.

    `cluster` is one that `read_gpu_cluster` returned, to ask several questions about one moment; `sources`
    says who is asked about nodes without an agent.
    """
    view = GpuView(cluster or read_gpu_cluster(kubeconfig, sources=sources), Rules())
    return [view.describe(node, gpu) for node in view.nodes() for gpu in by_index(node)]


def get_node_gpu_summaries(
    *,
    kubeconfig: str | Path | None = None,
    sources: Sources | None = None,
    cluster: GpuCluster | None = None,
) -> dict[str, NodeGPUSummary]:
    """Return the GPUs of every node that has any, by name; idle is below 30 % utilisation and 50 % memory."""
    view = GpuView(cluster or read_gpu_cluster(kubeconfig, sources=sources), Rules())
    return {node.name: view.summarise(node) for node in view.nodes()}


def find_best_node_for_deployment(  # noqa: PLR0913 — the first three are the original's, the rest by name
    required_gpus: int | str = 1,
    utilization_threshold: float = 30.0,
    memory_threshold: float = 50.0,
    *,
    gpu_memory: int | str | None = None,
    model: ModelSource | None = None,
    plan: Plan | None = None,
    policy: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Iterable[str] = (),
    host: HostNeeds | None = None,
    kubeconfig: str | Path | None = None,
    sources: Sources | None = None,
    cluster: GpuCluster | None = None,
) -> str | None:
    """Return the best node for a service, or None: then the choice is the scheduler's.

    With a number of GPUs alone, the ranking is `mostidle`: at least `required_gpus` idle cards of one kind,
    known ones before assumed ones, then the most of them, then the lowest utilisation. With `gpu_memory`
    (MiB on each GPU, or "20Gi"), a `model` or another `policy` the engine decides as it does for pods; what a
    model needs is the high figure of its estimate under `plan` (context, concurrency, engine), served by
    `required_gpus` GPUs. `tolerations` are keys of taints; `host` has whatever else its pod needs of a node.
    Nodes that are not ready, cordoned or tainted never win.
    """
    count = _read_count(required_gpus)
    rules = msgspec.structs.replace(
        Rules(),
        idle_utilization_percent=_read_percent("utilization_threshold", utilization_threshold),
        idle_memory_percent=_read_percent("memory_threshold", memory_threshold),
    )
    chosen = _read_policy(policy)
    need = _read_need(count, gpu_memory, model, plan)
    needs = _host_needs(host or HostNeeds(), node_selector or {}, tolerations)
    view = GpuView(cluster or read_gpu_cluster(kubeconfig, sources=sources), rules, needs)
    if need is None and chosen in {None, PolicyName.MOSTIDLE}:
        return view.most_idle(count)
    return view.decide(count, need or _need_whole, chosen)


def _read_need(
    count: int, gpu_memory: int | str | None, model: ModelSource | None, plan: Plan | None
) -> Need | None:
    """Return how much of each card is needed; None: nobody said."""
    if gpu_memory is not None and model is not None:
        raise _wrong("gpu_memory", gpu_memory, "is given beside a model", "one of gpu_memory and model")
    if gpu_memory is not None:
        size = _read_memory(gpu_memory)
        return lambda _kind: size
    if model is None:
        return None
    read, base = read_model(model), plan or Plan()
    if count % base.pp:
        raise _wrong(
            "required_gpus", count, f"cannot be dealt out to {base.pp} stages", f"a multiple of {base.pp}"
        )
    served = msgspec.structs.replace(base, tp=count // base.pp)

    def need(kind: CardKind) -> MibSize:
        card = msgspec.structs.replace(served, card_mib=kind.total_mib, card_model=kind.model)
        found = estimate(read, card)
        return MibSize(Mib(min(found.per_gpu.high, MAX_MIB)))

    return need


def _need_whole(_kind: CardKind) -> WholeSize:
    return WholeSize()


def read_model(model: ModelSource) -> Model:
    """Return a model however it is given: itself, a parsed config, or where its files are."""
    match model:
        case Model():
            return model
        case Mapping():
            return model_of_config(model, subject="model")
        case _:
            return load_model(str(model))


def _host_needs(host: HostNeeds, selector: Mapping[str, str], tolerations: Iterable[str]) -> HostNeeds:
    return msgspec.structs.replace(
        host,
        node_selector={**host.node_selector, **selector},
        tolerations=(*host.tolerations, *(Toleration(key, "Exists", "", "") for key in tolerations)),
    )


def _read_count(value: int | str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST_GPUS:
        raise _wrong("required_gpus", value, "is not a number of GPUs", f"1 to {_MOST_GPUS}")
    return int(text)


def _read_percent(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise _wrong(name, value, "is not a percentage", "0 to 100")
    return float(value)


def _read_policy(name: str | None) -> PolicyName | None:
    if name is None:
        return None
    try:
        return PolicyName(name)
    except ValueError:
        raise _wrong("policy", name, "is not known", ", ".join(PolicyName)) from None


def _read_memory(value: int | str) -> MibSize:
    try:
        return MibSize(parse_vram(str(value)))
    except ValueError as error:
        raise _wrong("gpu_memory", value, str(error), "20480, 20480Mi or 20Gi") from None


def _wrong(name: str, value: object, problem: str, accepted: str) -> RequestError:
    return RequestError(
        subject="find_best_node_for_deployment", field=name, value=value, problem=problem, accepted=accepted
    )
