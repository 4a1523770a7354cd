"""Which pods of a node have to go so that an ask finds room on its cards, and on which node that harms least.

Memory is on cards: a pod helps only if it holds memory, a slot or compute on a card that the ask could use.
Memory of pods that are leaving anyway is taken for free before anybody else is sent away.
"""

from collections.abc import Collection, Iterable

import msgspec

from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.decide.whatif import copy_node, copy_without_pods
from vramline.model.ask import Ask
from vramline.model.claim import ClaimState
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod
from vramline.model.rules import Rules, rules_for

__all__ = ["Evictable", "Plan", "choose_plan", "choose_victims", "keep_room", "leaving_pods"]

_NO_PRIORITY = 2**31
"""Added to priorities so that two victims never add up to less harm than one."""

_NOT_STARTED = float("inf")


class Evictable(msgspec.Struct, frozen=True):
    """A pod that may be sent away."""

    uid: str
    priority: int
    preferred: bool = False
    """Whether somebody else has reasons of his own to send it away."""


class Plan(msgspec.Struct, frozen=True):
    """A node on which an ask finds room once these pods are gone."""

    node: str
    victims: tuple[Pod, ...]

    def harm(self) -> tuple[int, int, int, float, str]:
        """Return what kube-scheduler compares, in its order; less is better.

        The highest priority among the victims, then the sum of all, then their number; then the node whose
        most important victims have run for the shortest time.
        """
        highest = max((pod.priority for pod in self.victims), default=-_NO_PRIORITY)
        above_all = sum(pod.priority + _NO_PRIORITY for pod in self.victims)
        starts = [
            _NOT_STARTED if pod.started_at is None else pod.started_at
            for pod in self.victims
            if pod.priority == highest
        ]
        return highest, above_all, len(self.victims), -min(starts, default=_NOT_STARTED), self.node


def choose_plan(plans: Iterable[Plan]) -> Plan | None:
    """Return the plan that harms least; None where there is none."""
    return min(plans, key=Plan.harm, default=None)


def keep_room(fleet: Fleet, node: str, asks: Iterable[Ask], rules: Rules, *, now: float) -> Fleet:
    """Return a copy of one node on which each ask holds the cards it would get once those who leave are gone.

    An ask that would find no room even then holds nothing.
    """
    copy = copy_node(fleet, node)
    for ask in asks:
        world = copy_without_pods(copy, node, leaving_pods(copy, node))
        decision = decide(world, ask, rules_for(rules, ask), now=now)
        if decision.placement is not None:
            copy.adopt(reservation_of(decision).claims)
    return copy


def leaving_pods(fleet: Fleet, node: str) -> set[str]:
    """Return the pods that hold memory on a node and are on their way out."""
    return {
        claim.pod_uid
        for gpu in _cards(fleet, node)
        for claim in fleet.ledger.of_card(gpu)
        if claim.state is ClaimState.RELEASING
    }


def choose_victims(
    fleet: Fleet, node: str, ask: Ask, rules: Rules, *, now: float, pods: Iterable[Evictable]
) -> tuple[str, ...] | None:
    """Return the pods to send away, none of which can be spared; None where even all of `pods` are too few.

    The highest priority among them is as low as it can be; then they are few, then preferred ones, then
    small ones. Nothing (an empty tuple) is the answer where those that leave anyway make room.
    """
    world = _World(copy_without_pods(fleet, node, leaving_pods(fleet, node)), ask, rules, now)
    if world.fits():
        return ()
    pool = _least_important(world, node, pods)
    if pool is None:
        return None
    by_card = _victims_by_card(world, node, pool)
    chosen: list[Evictable] = []
    for count, victims in enumerate(by_card, start=1):
        chosen += [pod for pod in victims if pod not in chosen]
        if count >= ask.gpus and world.fits(chosen):
            return tuple(pod.uid for pod in _spare(world, chosen))
    return tuple(pod.uid for pod in _spare(world, list(pool)))


class _World(msgspec.Struct, frozen=True):
    """A node, or one card of it, and the question that is asked about it."""

    fleet: Fleet
    ask: Ask
    rules: Rules
    now: float

    def fits(self, without: Iterable[Evictable] = ()) -> bool:
        """Whether the ask finds room once these pods are gone."""
        (node,) = self.fleet.nodes
        left = copy_without_pods(self.fleet, node.name, [pod.uid for pod in without])
        return decide(left, self.ask, self.rules, now=self.now).placement is not None

    def held_by(self, pod: Evictable) -> int:
        """What the pod was promised on the cards of this world."""
        return sum(claim.mib for claim in self.fleet.ledger.of_pod(pod.uid))


def _least_important(world: _World, node: str, pods: Iterable[Evictable]) -> tuple[Evictable, ...] | None:
    """Return the pods on the cards up to the lowest priority at which sending all of them away is enough."""
    here = {claim.pod_uid for gpu in _cards(world.fleet, node) for claim in world.fleet.ledger.of_card(gpu)}
    holders = [pod for pod in pods if pod.uid in here]
    for priority in sorted({pod.priority for pod in holders}):
        pool = tuple(pod for pod in holders if pod.priority <= priority)
        if world.fits(pool):
            return pool
    return None


def _victims_by_card(world: _World, node: str, pool: Collection[Evictable]) -> list[list[Evictable]]:
    """Return for each card that can be emptied enough who has to leave it, the cheapest card first."""
    one = msgspec.structs.replace(world.ask, gpus=1)
    found = []
    for gpu in _cards(world.fleet, node):
        card = msgspec.structs.replace(world, fleet=copy_node(world.fleet, node, card=gpu), ask=one)
        there = [pod for pod in pool if card.fleet.ledger.of_pod(pod.uid)]
        victims = _fewest(card, there)
        if victims is not None:
            strangers = sum(not pod.preferred for pod in victims)
            found.append(((len(victims), strangers, sum(map(card.held_by, victims)), gpu), victims))
    return [victims for _, victims in sorted(found, key=lambda each: each[0])]


def _fewest(card: _World, pods: list[Evictable]) -> list[Evictable] | None:
    """Return few pods that make room on one card: the largest ones, the last of them as small as will do."""
    by_size = sorted(pods, key=lambda pod: (-card.held_by(pod), pod.priority, not pod.preferred, pod.uid))
    taken: list[Evictable] = []
    while not card.fits(taken):
        if len(taken) == len(by_size):
            return None
        taken.append(by_size[len(taken)])
    if taken:
        rest = sorted(
            by_size[len(taken) - 1 :],
            key=lambda pod: (not pod.preferred, card.held_by(pod), pod.priority, pod.uid),
        )
        taken[-1] = next(pod for pod in rest if card.fits([*taken[:-1], pod]))
    return taken


def _spare(world: _World, victims: list[Evictable]) -> list[Evictable]:
    """Return the victims without those who need not go, most important and largest ones spared first."""
    needed = list(victims)
    order = sorted(victims, key=lambda pod: (pod.preferred, -pod.priority, -world.held_by(pod), pod.uid))
    for pod in order:
        others = [each for each in needed if each != pod]
        if world.fits(others):
            needed = others
    return needed


def _cards(fleet: Fleet, node: str) -> list[str]:
    owner = fleet.node(node)
    return [] if owner is None else [gpu.uuid for gpu in owner.gpus]
