"""By which rule a scheduler counts a card's free memory: peers' rules in a few lines each, and ours.

Peers' rules are stated here as their documentation and source have them, and no kinder or harsher;
docs/bench.md names the places.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from vramline.bench.vram_world import VramCard, VramPod, VramWorld
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.explain.nearness import Survey
from vramline.model.ask import Ask, MibSize
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.mix import class_of
from vramline.model.node import Node
from vramline.model.observation import GpuProcess, Observation
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = ["Look", "PeerRule", "Placer", "RuleName", "VramlineRule", "make_placer"]

Look = Callable[[str], tuple[GpuProcess, ...]]
"""What really is on a card now."""

_LOOKS = 4
_FOREVER = 1e12


class RuleName(enum.StrEnum):
    """The rules that are compared."""

    VRAMLINE = "vramline"
    BOOKS = "books"
    REPLICAS = "replicas"
    RELEASING_FREE = "releasing-free"


class Placer(Protocol):
    """A scheduler, as far as memory is concerned."""

    def place(self, pod: VramPod, now: float) -> tuple[str, ...] | str:
        """Return the cards that the pod gets, or a reason why it gets none."""

    def started(self, pod: VramPod, now: float) -> None:
        """It has taken its memory."""

    def deleted(self, pod: VramPod) -> None:
        """Deletion was asked for."""

    def ended(self, pod: VramPod, now: float) -> None:
        """Its containers have ended, and its object is gone."""

    def changed(self, card: str, now: float) -> None:
        """Something on a card is different from what it was."""


def make_placer(rule: RuleName, world: VramWorld, look: Look) -> Placer:
    """Return a scheduler that has just started."""
    return VramlineRule(world, look) if rule is RuleName.VRAMLINE else PeerRule(rule, world.cards)


class PeerRule:
    """Counts by claims alone: what cards say is never looked at."""

    def __init__(self, rule: RuleName, cards: Iterable[VramCard]) -> None:
        self._releasing_is_free = rule is RuleName.RELEASING_FREE
        self._packs = rule is RuleName.REPLICAS
        self._views: dict[str, int] = {}
        """What is left of each thing that counts as a card: the card, or each of its replicas."""
        self._node_of: dict[str, str] = {}
        for card in cards:
            views = card.replicas if rule is RuleName.REPLICAS else 1
            for view in range(views):
                label = card.total // 100 * 100 if rule is RuleName.REPLICAS else card.total
                self._views[f"{card.name}::{view}"] = label
                self._node_of[f"{card.name}::{view}"] = card.node
        self._left_on: Counter[str] = Counter()
        for name, node in self._node_of.items():
            self._left_on[node] += self._views[name]
        self._held: dict[str, list[str]] = {}

    def place(self, pod: VramPod, now: float) -> tuple[str, ...] | str:
        """Take views of the node with the least left; there those with the most left, or with the least."""
        del now
        by_node: dict[str, list[str]] = {}
        for view, left in self._views.items():
            if left >= pod.ask:
                by_node.setdefault(self._node_of[view], []).append(view)
        nodes = [node for node, views in by_node.items() if len(views) >= pod.gpus]
        if not nodes:
            return "Insufficient"
        node = min(nodes, key=lambda each: (self._left_on[each], each))
        sign = 1 if self._packs else -1
        views = sorted(by_node[node], key=lambda each: (sign * self._views[each], each))[: pod.gpus]
        self._held[pod.name] = views
        self._take(views, pod.ask)
        return tuple(view.partition("::")[0] for view in views)

    def started(self, pod: VramPod, now: float) -> None:
        """It holds what it asked for, started or not."""

    def deleted(self, pod: VramPod) -> None:
        """Give back at once, by the rule that calls releasing memory free."""
        if self._releasing_is_free:
            self._give_back(pod)

    def ended(self, pod: VramPod, now: float) -> None:
        """Give back with the object."""
        del now
        self._give_back(pod)

    def changed(self, card: str, now: float) -> None:
        """Nobody looks."""

    def _give_back(self, pod: VramPod) -> None:
        self._take(self._held.pop(pod.name, []), -pod.ask)

    def _take(self, views: list[str], mib: int) -> None:
        for view in views:
            self._views[view] -= mib
            self._left_on[self._node_of[view]] -= mib


class VramlineRule:
    """The product's own engine: fleet, decide, reserve, settle, and a look at the chosen cards at bind."""

    def __init__(self, world: VramWorld, look: Look) -> None:
        self._look = look
        self._fleet = Fleet()
        self._rules = Rules(max_age_s=_FOREVER)
        self._stale: set[str] = set()
        """Cards on which something changed since an agent last told; agents tell once a second."""
        self._told_at = 0.0
        for node in dict.fromkeys(card.node for card in world.cards):
            cards = [card for card in world.cards if card.node == node]
            self._fleet.set_node(Node(name=node, gpus=tuple(map(_physical, cards))))
        for card in world.cards:
            self._see(card.name, 0.0)

    def place(self, pod: VramPod, now: float) -> tuple[str, ...] | str:
        """Decide, look at the cards that were chosen, and decide again until a look shows them all."""
        self._hear_agents(now)
        ask = Ask(pod=f"bench/{pod.name}", pod_uid=pod.name, gpus=pod.gpus, size=MibSize(Mib(pod.ask)))
        self._fleet.mix.see(class_of(ask))
        looked: set[str] = set()
        for _ in range(_LOOKS):
            decision = decide(self._fleet, ask, self._rules, now=now)
            if decision.placement is None:
                return str(Survey(self._fleet, decision).speaks)
            chosen = {share.uuid for share in decision.placement.gpus}
            if chosen <= looked:
                self._fleet.reserve(reservation_of(decision))
                self._fleet.pod_bound(pod.name)
                return tuple(sorted(chosen))
            for card in chosen:
                self._see(card, now)
            looked = chosen
        return "CardsKeepChanging"

    def started(self, pod: VramPod, now: float) -> None:
        """Its processes are to be seen from now on."""
        self._fleet.pod_started(pod.name, at=now)

    def deleted(self, pod: VramPod) -> None:
        """Held until the card shows otherwise."""
        self._fleet.pod_deleted(pod.name)

    def ended(self, pod: VramPod, now: float) -> None:
        """Still held until the card shows otherwise."""
        self._fleet.pod_ended(pod.name, at=now)
        self._stale.update(claim.gpu for claim in self._fleet.ledger.of_pod(pod.name))

    def changed(self, card: str, now: float) -> None:
        """An agent will tell within a second."""
        del now
        self._stale.add(card)

    def _hear_agents(self, now: float) -> None:
        """Take in what agents told at the last full second."""
        if int(now) <= self._told_at:
            return
        self._told_at = int(now)
        for card in sorted(self._stale):
            self._see(card, now)
        self._stale = {claim.gpu for claim in self._fleet.ledger.releasing()}
        self._fleet.settle(now=now, grace_s=_FOREVER, max_age_s=_FOREVER)

    def _see(self, card: str, now: float) -> None:
        processes = self._look(card)
        used = sum(each.used for each in processes if isinstance(each.used, int))
        self._fleet.observe(card, Observation(at=now, used=Mib(used), processes=processes))


def _physical(card: VramCard) -> PhysicalGpu:
    return PhysicalGpu(
        uuid=card.name,
        node=card.node,
        index=int(card.name.rpartition("-")[2]),
        model=card.model,
        total=Mib(card.total),
        reserved=Mib(card.reserved),
        slots=card.replicas if card.replicas > 1 else None,
    )
