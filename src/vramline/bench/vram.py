"""How much memory is handed out by different rules of counting, and what becomes of the pods.

The same pods come at the same times to the same cards, once for each rule. A pod that finds less free on its
card than it takes dies of it. Nobody waits: a pod that fits nowhere is turned away, with a reason.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from vramline.bench.vram_check import LogEntry, find_over_commits
from vramline.bench.vram_rules import Placer, RuleName, make_placer
from vramline.bench.vram_world import Stranger, VramPod, VramShape, VramWorld, make_world
from vramline.model.observation import GpuProcess
from vramline.units import Mib

__all__ = ["RuleFigures", "VramFigures", "VramRun", "measure_vram"]

_WARM_UP = 0.3
"""Part of the time in which the cluster fills, and does not count for allocation."""

Action = Callable[[float], None]


class RuleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one rule."""

    rule: RuleName
    placed: int
    rejected: dict[str, int]
    """By reason."""
    over_commits: int
    """Promises of more than the card had left in that moment, by a count that is independent of the rule."""
    died: int
    """Pods that found less on their card than they took."""
    died_by_rule: int
    """Of these, where the card had never had room for the promise to the pod, or to another that was there;
    the rest fell to strangers that came later."""
    allocated_percent: float
    """Memory of pods that live or are ending, of what all cards have, on average over time."""


class VramFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All rules on one world."""

    nodes: int
    gpus_per_node: int
    pods: int
    strangers: int
    seed: int
    rules: list[RuleFigures]


def measure_vram(
    shape: VramShape, *, rules: tuple[RuleName, ...] = tuple(RuleName), progress: Callable[[int, int], None]
) -> VramFigures:
    """Let the same world happen under each rule."""
    world = make_world(shape)
    done = []
    whole = len(rules) * len(world.pods)
    for number, rule in enumerate(rules):
        run = VramRun(world, partial(make_placer, rule, world))
        run.play(partial(_report, progress, number * len(world.pods), whole))
        done.append(run.figures(rule))
    return VramFigures(
        nodes=shape.nodes,
        gpus_per_node=shape.gpus,
        pods=shape.pods,
        strangers=len(world.strangers),
        seed=shape.seed,
        rules=done,
    )


def _report(progress: Callable[[int, int], None], before: int, whole: int, number: int) -> None:
    progress(before + number, whole)


@dataclass(slots=True)
class _Stay:
    """A pod where it was placed."""

    pod: VramPod
    cards: Counter[str]
    """How often it got each card: by one rule the same card may be handed out as two."""


@dataclass(slots=True)
class _Tally:
    placed: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    died: list[set[tuple[str, str]]] = field(default_factory=list)
    """For each pod that died, who was on the cards that were short, itself among them: pod and card."""
    area: float = 0.0
    held: int = 0
    since: float = 0.0


class VramRun:
    """One rule on one world: what really is on the cards, event by event."""

    def __init__(
        self, world: VramWorld, start: Callable[[Callable[[str], tuple[GpuProcess, ...]]], Placer]
    ) -> None:
        self._world = world
        self._usable = {card.name: card.usable for card in world.cards}
        self._on_card: dict[str, dict[str, int]] = {card.name: {} for card in world.cards}
        self._queue: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._tally = _Tally(since=_WARM_UP * world.pods[-1].at)
        self.log: list[LogEntry] = []
        self._placer = start(self._look)

    def play(self, progress: Callable[[int], None]) -> None:
        """Let everything happen, in order of time, until the last pod has come."""
        for pod in self._world.pods:
            self._later(pod.at, partial(self._arrive, pod))
        for stranger in self._world.strangers:
            self._later(stranger.at, partial(self._come, stranger))
        end = self._world.pods[-1].at
        while self._queue and self._queue[0][0] <= end:
            now, _, action = heapq.heappop(self._queue)
            action(now)
            progress(self._tally.placed + self._tally.rejected.total())
        self._count(end, 0)

    def figures(self, rule: RuleName) -> RuleFigures:
        """Return what came of it."""
        broken = find_over_commits(self._usable, self.log)
        not_kept = {(each.who, each.card) for each in broken}
        tally = self._tally
        span = self._world.pods[-1].at * (1 - _WARM_UP)
        return RuleFigures(
            rule=rule,
            placed=tally.placed,
            rejected=dict(tally.rejected.most_common()),
            over_commits=len(broken),
            died=len(tally.died),
            died_by_rule=sum(not not_kept.isdisjoint(there) for there in tally.died),
            allocated_percent=round(100 * tally.area / span / self._world.usable, 2),
        )

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, pod: VramPod, now: float) -> None:
        cards = self._placer.place(pod, now)
        if isinstance(cards, str):
            self._tally.rejected[cards] += 1
            return
        self._tally.placed += 1
        stay = _Stay(pod, Counter(cards))
        self._count(now, pod.ask * len(cards))
        for card, times in stay.cards.items():
            self.log.append(LogEntry(now, "promised", pod.name, card, times * pod.ask))
        self._later(now + pod.start_s, partial(self._start, stay))

    def _start(self, stay: _Stay, now: float) -> None:
        pod = stay.pod
        short = [card for card, times in stay.cards.items() if self._free(card) < times * pod.use]
        if short:
            there = {(who, card) for card in short for who in (pod.name, *self._on_card[card])}
            self._tally.died.append(there)
            self._placer.deleted(pod)
            self._placer.ended(pod, now)
            self._leave(stay, now)
            return
        for card, times in stay.cards.items():
            self._on_card[card][pod.name] = times * pod.use
            self.log.append(LogEntry(now, "took", pod.name, card, times * pod.use))
            self._placer.changed(card, now)
        self._placer.started(pod, now)
        asked_at = now + pod.life_s
        self._later(asked_at, lambda _at: self._placer.deleted(pod))
        self._later(asked_at + pod.grace_s, partial(self._placer.ended, pod))
        self._later(asked_at + pod.grace_s + pod.lag_s, partial(self._leave, stay))

    def _leave(self, stay: _Stay, now: float) -> None:
        self._count(now, -stay.pod.ask * stay.cards.total())
        for card in stay.cards:
            self._on_card[card].pop(stay.pod.name, None)
            self.log.append(LogEntry(now, "left", stay.pod.name, card))
            self._placer.changed(card, now)

    # ── strangers ────────────────────────────────────────────────────────────────────────────────

    def _come(self, stranger: Stranger, now: float) -> None:
        """A stranger starts if the card has room in that moment, promised to others or not."""
        if self._free(stranger.card) < stranger.mib:
            return
        self._on_card[stranger.card][stranger.name] = stranger.mib
        self.log.append(LogEntry(now, "came", stranger.name, stranger.card, stranger.mib))
        self._placer.changed(stranger.card, now)
        self._later(now + stranger.stay_s, partial(self._go, stranger))

    def _go(self, stranger: Stranger, now: float) -> None:
        del self._on_card[stranger.card][stranger.name]
        self.log.append(LogEntry(now, "went", stranger.name, stranger.card))
        self._placer.changed(stranger.card, now)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _later(self, at: float, action: Action) -> None:
        heapq.heappush(self._queue, (at, next(self._order), action))

    def _free(self, card: str) -> int:
        return self._usable[card] - sum(self._on_card[card].values())

    def _look(self, card: str) -> tuple[GpuProcess, ...]:
        return tuple(
            GpuProcess(pid=number, used=Mib(mib), pod_uid=None if name.startswith("stranger") else name)
            for number, (name, mib) in enumerate(self._on_card[card].items(), start=1)
        )

    def _count(self, now: float, change: int) -> None:
        """Add up what is held over time."""
        tally = self._tally
        if now > tally.since:
            tally.area += tally.held * (now - tally.since)
            tally.since = now
        tally.held += change
