"""What was seen on the cards and by whom: which look counts, and where memory became free by it.

A stream's sample counts for a few seconds. After that the last report counts again, as old as it is, while
it is young enough; then nobody's word does. Time is the receiver's: no other clock makes a look younger.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from vramline.model.columns import NEVER
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import NOT_REPORTED, Observation, ObservationSource, Unknown
from vramline.scheduler.clocks import ReportClock
from vramline.wire.nodes import observations_in
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, observe
from vramline.wire.uuids import card_of

__all__ = ["Sightings"]


class Sightings:
    """Every look at a card of a fleet goes through here."""

    def __init__(
        self, fleet: Fleet, clock: Callable[[], float], *, max_age_s: float, stream_max_age_s: float = 5.0
    ) -> None:
        self.freed: set[str] = set()
        """Nodes on which something became free, or known, since somebody last emptied this set."""
        self._fleet = fleet
        self._clock = clock
        self._max_age_s = max_age_s
        self.stream_max_age_s = stream_max_age_s
        self._told: dict[str, dict[str, Observation]] = {}
        """By node and card, the newest word of those that write down what they saw, now and then."""
        self._report_clock = ReportClock(max_age_s=max_age_s)
        self._samples: dict[str, tuple[tuple[ReportedGpu, ...], tuple[PhysicalGpu, ...]]] = {}
        """By node, the newest sample if it shows all cards, and the cards that the node had then."""
        self._swept_at = NEVER

    def date(self, report: GpuReport) -> GpuReport:
        """Return a report as old as it is at least, by our own clock."""
        return self._report_clock.date(report, now=self._clock())

    def take_report(self, report: GpuReport) -> None:
        """Look at the cards through a report that `date` returned."""
        self.take_told(report.node, observations_in(report))

    def take_told(self, node: str, seen: Mapping[str, Observation]) -> None:
        """Look at cards of a node through what somebody wrote down; a stream that speaks is better."""
        told, now = self._told.setdefault(node, {}), self._clock()
        for uuid, observation in seen.items():
            known = told.get(uuid)
            if known is None or known.at <= observation.at:
                told[uuid] = observation
            if not self._is_of(uuid, node):
                continue
            current = self._fleet.observation(uuid)
            if current is None or current.void_at == math.inf:
                self._observe(uuid, observation)
            elif current.void_at <= now:  # newer perhaps, but nobody's word any more
                self._observe(uuid, told[uuid], anew=True)

    def take_first(self, node: str, seen: Mapping[str, Observation]) -> None:
        """Look at the cards of a node that has just come; that something became known there is known."""
        there, told = self._fleet.node(node), self._told.setdefault(node, {})
        if told:
            told.update({uuid: look for uuid, look in seen.items() if not _is_newer(told.get(uuid), look)})
        else:
            told.update(seen)
        names = {gpu.uuid for gpu in there.gpus} if there is not None else set()
        self._fleet.observe_all(
            seen if seen.keys() <= names else {uuid: seen[uuid] for uuid in seen if uuid in names}
        )

    def take_sample(self, sample: GpuReport, source: ObservationSource = ObservationSource.STREAM) -> int:
        """Look at cards through a stream's sample; return how many it names that its node does not have."""
        at, strangers = sample.observed_at, 0
        if at is None or self._fleet.node(sample.node) is None:
            return 0  # a stream may be faster than the list of nodes
        void_at = at + self.stream_max_age_s
        if self._is_the_same(sample):
            busy = {gpu.uuid or "": _busy(gpu) for gpu in sample.gpus or ()}
            if self._fleet.see_again(sample.node, at=at, void_at=void_at, source=source, utilization=busy):
                return 0
        for gpu in sample.gpus or ():
            uuid = card_of(gpu.uuid or "")
            if self._is_of(uuid, sample.node):
                self._observe(uuid, observe(gpu, at, source=source, void_at=void_at))
            else:
                strangers += 1
        self._remember(sample)
        return strangers

    def hears(self, node: str) -> bool:
        """Whether an agent of ours has lately said something about a node."""
        since = self._clock() - self._max_age_s
        told = self._told.get(node, {}).values()
        return any(each.source is ObservationSource.REPORT and each.at >= since for each in told)

    def expire(self) -> None:
        """Where a stream fell silent, let the last word before it count, while that is young enough."""
        columns, now = self._fleet.columns, self._clock()
        silent = np.flatnonzero((columns.void_at <= now) & (columns.void_at > self._swept_at))
        for row in silent.tolist():
            gpu = columns.card(row)
            told = self._told.get(gpu.node, {}).get(gpu.uuid)
            if told is not None and told.at >= now - self._max_age_s:
                self._fleet.show(gpu.uuid, told)
        self._swept_at = now

    def forget(self, node: str) -> None:
        """A node left, or its report was deleted."""
        self._told.pop(node, None)
        self._report_clock.forget(node)
        self._samples.pop(node, None)

    def _is_the_same(self, sample: GpuReport) -> bool:
        """Whether a sample shows all cards of its node, with their memory as the one before it did."""
        before, cards = self._samples.get(sample.node, ((), ()))
        node, gpus = self._fleet.node(sample.node), sample.gpus or ()
        if node is None or not gpus or cards is not node.gpus or len(before) != len(gpus):
            return False
        return all(
            one.uuid == other.uuid and one.used_mib == other.used_mib and one.processes == other.processes
            for one, other in zip(before, gpus, strict=True)
        )

    def _remember(self, sample: GpuReport) -> None:
        """Keep a sample to compare the next one with, if it shows all cards of its node and no others."""
        node, gpus = self._fleet.node(sample.node), sample.gpus or ()
        if node is not None and {gpu.uuid for gpu in gpus} == {gpu.uuid for gpu in node.gpus}:
            self._samples[sample.node] = gpus, node.gpus
        else:
            self._samples.pop(sample.node, None)

    def _is_of(self, uuid: str, node: str) -> bool:
        gpu = self._fleet.gpu(uuid)
        return gpu is not None and gpu.node == node

    def _observe(self, uuid: str, observation: Observation, *, anew: bool = False) -> None:
        fleet, generation = self._fleet, self._fleet.generation
        columns, row = fleet.columns, fleet.columns.row_of[uuid]
        before = columns.free_observed[row]
        was_fresh = columns.is_fresh(row, now=observation.at, max_age_s=self._max_age_s)
        if anew:
            fleet.show(uuid, observation)
        else:
            fleet.observe(uuid, observation)
        if fleet.generation != generation and (not was_fresh or columns.free_observed[row] > before):
            self.freed.add(columns.card(row).node)


def _is_newer(known: Observation | None, look: Observation) -> bool:
    return known is not None and known.at > look.at


def _busy(gpu: ReportedGpu) -> int | Unknown:
    return NOT_REPORTED if gpu.utilization_percent is None else gpu.utilization_percent
