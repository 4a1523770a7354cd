"""Which GPUs a cluster has, which of them are idle, and the best node for an inference service.

The names, arguments and fields are those of the LLM inference autotuner's `gpu_discovery`; extras come last.
What nobody could tell is None, never 0, and never idle, except on a node where no pod asks for a GPU.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from vramline.decide.engine import decide
from vramline.decide.idle import average_utilization, idle_cards
from vramline.decide.realtime import look_at_cards
from vramline.errors import RequestError
from vramline.inference.gpu_cluster import GpuCluster, read_gpu_cluster
from vramline.model.ask import Ask, Constraints, MibSize, PolicyName, Size, WholeSize
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import Observation, Unknown
from vramline.model.pod import HostNeeds, Pod, Toleration
from vramline.model.reason import FITS
from vramline.model.rules import Rules
from vramline.units import parse_vram

__all__ = [
    "GPUInfo",
    "NodeGPUSummary",
    "find_best_node_for_deployment",
    "get_cluster_gpu_status",
    "get_node_gpu_summaries",
]

KNOWN_FREE, KNOWN_BUSY, UNKNOWN = "known-free", "known-busy", "unknown"
_MOST_GPUS = 1024
_ASKER = "inference/service"


@dataclass
class GPUInfo:
    """One physical GPU. MiB, though the names say MB; None is what nobody could tell."""

    node_name: str
    gpu_index: int
    gpu_name: str
    memory_total_mb: int
    memory_used_mb: int | None
    memory_free_mb: int | None
    memory_usage_percent: float | None
    utilization_percent: int | None
    temperature_c: int | None
    is_allocatable: bool
    """Whether a new pod could have all of it: node and card are in service, and nobody holds a part."""
    has_metrics: bool
    """Whether the card was seen lately and told its memory."""
    uuid: str = ""
    mig: bool = False
    claimed_mb: int = 0
    releasing_mb: int = 0
    """Part of what is claimed."""
    promisable_mb: int = 0
    """What the scheduler would promise: usable − margin − held − unmanaged."""
    source: str = ""
    """Where the inventory is from."""
    age_s: float | None = None
    state: str = UNKNOWN
    """known-free: idle and held by nobody; known-busy: held, or busy when it was seen; else unknown."""


@dataclass
class NodeGPUSummary:
    """The GPUs of one node."""

    node_name: str
    total_gpus: int
    """Physical cards; where only devices are advertised and nothing tells the cards, the devices."""
    allocatable_gpus: int
    gpus_with_metrics: list[GPUInfo]
    avg_utilization: float | None
    """Over the cards that told theirs; None: none did."""
    avg_memory_usage: float | None
    idle_gpu_count: int
    ready: bool = True
    schedulable: bool = True
    """Ready, not cordoned, without a taint that keeps pods away, and its inventory is not in doubt."""
    unknown_gpu_count: int = 0
    free_mb_by_gpu: dict[str, int] = field(default_factory=dict)
    """What may be promised, by UUID."""
    largest_free_mb: int | None = None


def get_cluster_gpu_status(
    *, kubeconfig: str | Path | None = None, cluster: GpuCluster | None = None
) -> list[GPUInfo]:
    """Return every physical GPU of the cluster; raises where the cluster cannot be read.

    `cluster` is one that `read_gpu_cluster` returned, to ask several questions about one moment.
    """
    view = _View(cluster or read_gpu_cluster(kubeconfig), Rules())
    return [view.describe(node, gpu) for node in view.nodes() for gpu in _by_index(node)]


def get_node_gpu_summaries(
    *, kubeconfig: str | Path | None = None, cluster: GpuCluster | None = None
) -> dict[str, NodeGPUSummary]:
    """Return the GPUs of every node that has any, by name; idle is below 30 % utilisation and 50 % memory."""
    view = _View(cluster or read_gpu_cluster(kubeconfig), Rules())
    return {node.name: view.summarise(node) for node in view.nodes()}


def find_best_node_for_deployment(  # noqa: PLR0913 — the first three are the original's, the rest by name
    required_gpus: int | str = 1,
    utilization_threshold: float = 30.0,
    memory_threshold: float = 50.0,
    *,
    gpu_memory: int | str | None = None,
    policy: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Iterable[str] = (),
    kubeconfig: str | Path | None = None,
    cluster: GpuCluster | None = None,
) -> str | None:
    """Return the best node for a service, or None: then the choice is the scheduler's.

    With a number of GPUs alone, the ranking is `mostidle`: at least `required_gpus` idle cards of one kind,
    known ones before assumed ones, then the most of them, then the lowest utilisation. With `gpu_memory`
    (MiB on each GPU, or "20Gi") or another `policy` the engine decides as it does for pods. `tolerations`
    are keys of taints. Nodes that are not ready, cordoned or tainted never win.
    """
    count = _read_count(required_gpus)
    rules = msgspec.structs.replace(
        Rules(),
        idle_utilization_percent=_read_percent("utilization_threshold", utilization_threshold),
        idle_memory_percent=_read_percent("memory_threshold", memory_threshold),
    )
    chosen = _read_policy(policy)
    host = HostNeeds(
        node_selector=dict(node_selector or {}),
        tolerations=tuple(Toleration(key, "Exists", "", "") for key in tolerations),
    )
    size = WholeSize() if gpu_memory is None else _read_memory(gpu_memory)
    view = _View(cluster or read_gpu_cluster(kubeconfig), rules, host)
    if gpu_memory is None and chosen in {None, PolicyName.MOSTIDLE}:
        return view.most_idle(count)
    return view.decide(count, size, chosen)


class _View:
    """A cluster, looked at with one idea of what is idle, by a pod with certain wishes."""

    def __init__(self, cluster: GpuCluster, rules: Rules, host: HostNeeds | None = None) -> None:
        self.cluster = cluster
        self.fleet = cluster.fleet
        self.rules = rules
        self.host = host or HostNeeds()
        asker = Pod(namespace="inference", name="service", uid="", host=self.host)
        self._codes = cluster.candidates_for(asker)
        self._open = (self._codes == FITS) & (self.fleet.node_codes() == FITS)
        look = look_at_cards(self.fleet.columns, rules, now=cluster.now())
        self._fresh = look.fresh
        self._average = average_utilization(look)
        self._idle = idle_cards(look) & (self.fleet.columns.sharers == 0)

    def nodes(self) -> Iterator[Node]:
        """Yield every node with GPUs, or with devices that may be GPUs, by name."""
        for node in sorted(self.fleet.nodes, key=lambda each: each.name):
            if node.gpus or node.advertised:
                yield node

    def describe(self, node: Node, gpu: PhysicalGpu) -> GPUInfo:
        """Say of one card what is known."""
        row = self.fleet.columns.row_of[gpu.uuid]
        columns = self.fleet.columns
        seen = self.fleet.observation(gpu.uuid) if self._fresh[row] else None
        used = _known(seen.used) if seen is not None else None
        told = used is not None
        free = columns.free_observed[row] if told else columns.free_books[row]
        return GPUInfo(
            node_name=node.name,
            gpu_index=gpu.index,
            gpu_name=gpu.model or "unknown",
            memory_total_mb=gpu.total,
            memory_used_mb=used,
            memory_free_mb=None if used is None else gpu.usable - used,
            memory_usage_percent=None if used is None else round(used / gpu.total * 100, 1),
            utilization_percent=None if seen is None else _known(seen.utilization_percent),
            temperature_c=None if seen is None else _known(seen.temperature_c),
            is_allocatable=self._is_open(node) and self._is_whole(row),
            has_metrics=told,
            uuid=gpu.uuid,
            mig=gpu.mig,
            claimed_mb=int(columns.claimed[row]),
            releasing_mb=int(columns.claimed_releasing[row]),
            promisable_mb=int(free),
            source=node.source.value,
            age_s=self._age(self.fleet.observation(gpu.uuid)),
            state=self._state(row),
        )

    def summarise(self, node: Node) -> NodeGPUSummary:
        """Sum up one node."""
        cards = [self.describe(node, gpu) for gpu in _by_index(node)]
        told = [card for card in cards if card.has_metrics]
        utilizations = [card.utilization_percent for card in cards if card.utilization_percent is not None]
        usages = [card.memory_usage_percent for card in cards if card.memory_usage_percent is not None]
        unlisted = 0 if cards else node.advertised or 0
        return NodeGPUSummary(
            node_name=node.name,
            total_gpus=len(cards) or unlisted,
            allocatable_gpus=sum(card.is_allocatable for card in cards),
            gpus_with_metrics=told,
            avg_utilization=_mean(utilizations),
            avg_memory_usage=_mean(usages),
            idle_gpu_count=len(self._idle_rows(node)) if self._is_open(node) else 0,
            ready=node.ready,
            schedulable=self._is_open(node),
            unknown_gpu_count=len(cards) - len(told) + unlisted,
            free_mb_by_gpu={card.uuid: card.promisable_mb for card in cards},
            largest_free_mb=max((card.promisable_mb for card in cards), default=None),
        )

    def most_idle(self, required: int) -> str | None:
        """Return the node of the original's ranking; one with too few idle cards never wins."""
        best: tuple[int, int, float, str] | None = None
        for node in self.fleet.nodes:
            if not node.gpus or not self._is_open(node):
                continue
            average = float(
                self._average[self.fleet.columns.block[self.fleet.columns.row_of[node.gpus[0].uuid]]]
            )
            for rows in self._idle_by_kind(node):
                if len(rows) < required:
                    continue
                assumed = int(sum(bool(self._fresh[row]) for row in rows) < required)
                order = (assumed, -len(rows), average, node.name)
                best = order if best is None or order < best else best
        return None if best is None else best[3]

    def decide(self, required: int, size: Size, policy: PolicyName | None) -> str | None:
        """Return the node that the engine takes; all cards of one kind, the smaller kind first."""
        rules = msgspec.structs.replace(self.rules, policy=policy or self.rules.policy)
        for wishes in self._kinds(required):
            ask = Ask(pod=_ASKER, pod_uid=_ASKER, gpus=required, size=size, constraints=wishes)
            found = decide(self.fleet, ask, rules, now=self.cluster.now(), candidates=self._codes)
            if found.placement is not None:
                return found.placement.node
        return None

    def _kinds(self, required: int) -> list[Constraints]:
        """Return which cards may work together: any, for one; those of one model and size, for several."""
        kinds: dict[tuple[int, str], list[str]] = {}
        for node in self.fleet.nodes:
            for gpu in node.gpus:
                kinds.setdefault((gpu.total, gpu.model), []).append(gpu.uuid)
        if required == 1 or len(kinds) == 1:
            return [Constraints()]
        return [Constraints(use_uuids=tuple(kinds[kind])) for kind in sorted(kinds)]

    def _is_open(self, node: Node) -> bool:
        number = self.fleet.node_number(node.name)
        return number is not None and bool(self._open[number])

    def _is_whole(self, row: int) -> bool:
        columns = self.fleet.columns
        return bool(columns.static_code[row] == FITS and columns.sharers[row] == 0)

    def _idle_rows(self, node: Node) -> list[int]:
        rows = (self.fleet.columns.row_of[gpu.uuid] for gpu in node.gpus)
        return [row for row in rows if self._idle[row]]

    def _idle_by_kind(self, node: Node) -> Iterable[list[int]]:
        kinds: dict[tuple[int, str], list[int]] = {}
        for gpu in node.gpus:
            row = self.fleet.columns.row_of[gpu.uuid]
            if self._idle[row]:
                kinds.setdefault((gpu.total, gpu.model), []).append(row)
        return kinds.values()

    def _state(self, row: int) -> str:
        """A card is free or busy where that is known: by who holds it, or by what it told lately."""
        columns = self.fleet.columns
        if columns.sharers[row] > 0:
            return KNOWN_BUSY
        if not self._fresh[row]:
            return UNKNOWN
        if self._idle[row]:
            return KNOWN_FREE
        # Comparisons with NaN are false: what was not told makes nothing busy.
        busy = (columns.utilization[row] >= self.rules.idle_utilization_percent) | (
            columns.used_percent[row] >= self.rules.idle_memory_percent
        )
        return KNOWN_BUSY if busy else UNKNOWN

    def _age(self, seen: Observation | None) -> float | None:
        return None if seen is None or not np.isfinite(seen.at) else self.cluster.now() - seen.at


def _by_index(node: Node) -> list[PhysicalGpu]:
    return sorted(node.gpus, key=lambda gpu: gpu.index)


def _known(value: int | Unknown) -> int | None:
    return None if isinstance(value, Unknown) else int(value)


def _mean(values: list[int] | list[float]) -> float | None:
    return sum(values) / len(values) if values else None


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
