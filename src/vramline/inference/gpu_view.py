"""A cluster's cards as somebody sees them who wants to put a service there."""

from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from vramline.decide.engine import decide
from vramline.decide.idle import average_utilization, idle_cards
from vramline.decide.realtime import look_at_cards
from vramline.inference.card_kinds import CardKind, kinds_of, wishes_for
from vramline.inference.gpu_cluster import GpuCluster
from vramline.inference.gpu_info import KNOWN_BUSY, KNOWN_FREE, UNKNOWN, GPUInfo, NodeGPUSummary
from vramline.model.ask import Ask, Constraints, PolicyName, Size
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import Observation, Unknown
from vramline.model.pod import HostNeeds, Pod
from vramline.model.reason import FITS
from vramline.model.rules import Rules

__all__ = ["GpuView", "Need", "by_index"]

_ASKER = "inference/service"

Need = Callable[[CardKind], Size]
"""How much of each card is needed, by the kind of card: an engine takes larger batches on larger ones."""


class GpuView:
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
            source=self._seen_by(gpu.uuid),
            age_s=self._age(self.fleet.observation(gpu.uuid)),
            state=self._state(row),
            inventory=node.source.value,
        )

    def summarise(self, node: Node) -> NodeGPUSummary:
        """Sum up one node."""
        cards = [self.describe(node, gpu) for gpu in by_index(node)]
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

    def decide(self, required: int, need: Need, policy: PolicyName | None) -> str | None:
        """Return the node that the engine takes; all cards of one kind, the smaller kind first."""
        rules = msgspec.structs.replace(self.rules, policy=policy or self.rules.policy)
        for size, wishes in self._choices(required, need):
            ask = Ask(pod=_ASKER, pod_uid=_ASKER, gpus=required, size=size, constraints=wishes)
            found = decide(self.fleet, ask, rules, now=self.cluster.now(), candidates=self._codes)
            if found.placement is not None:
                return found.placement.node
        return None

    def _choices(self, required: int, need: Need) -> Iterator[tuple[Size, Constraints]]:
        """Yield how much to ask for of which cards: any for a single one, one kind and linked for several."""
        kinds = kinds_of(self.fleet)
        sizes = {kind: need(kind) for kind in sorted(kinds)}
        same = len(set(sizes.values())) == 1
        if same and required == 1:
            yield next(iter(sizes.values())), Constraints()
            return
        for kind, size in sizes.items():
            for wishes in wishes_for(self.fleet, kinds, kind, required):
                yield size, wishes

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

    def _seen_by(self, uuid: str) -> str:
        seen = self.fleet.observation(uuid)
        return "" if seen is None else seen.source.value

    def _age(self, seen: Observation | None) -> float | None:
        return None if seen is None or not np.isfinite(seen.at) else self.cluster.now() - seen.at


def by_index(node: Node) -> list[PhysicalGpu]:
    """Return the cards of a node in the order of the driver."""
    return sorted(node.gpus, key=lambda gpu: gpu.index)


def _known(value: int | Unknown) -> int | None:
    return None if isinstance(value, Unknown) else int(value)


def _mean(values: list[int] | list[float]) -> float | None:
    return sum(values) / len(values) if values else None
