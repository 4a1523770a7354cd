"""The claim follows the card: kubelet may give another one than was planned.

What is planned is held in this process alone until the cards are out of kubelet's hands, and only then
stored. So whichever cards kubelet gives, the ledger is written once, after the ask was found to fit there by
every rule.
"""

from collections.abc import Mapping

import msgspec

from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.ask import Ask
from vramline.model.decision import Decision, Placement
from vramline.model.holding import CardHolder, Changed, Elsewhere, Held, NotHeld
from vramline.model.ledger import Reservation
from vramline.model.pod import Pod
from vramline.scheduler.live import LiveState

__all__ = ["Planned", "decide_among_cards", "find_cards"]

Planned = tuple[Placement, Reservation]
"""Where the pod goes, and what it is to claim there."""


async def find_cards(
    live: LiveState, holder: CardHolder, pod: Pod, planned: Planned
) -> tuple[Planned, dict[str, str]] | str:
    """Have the planned cards held, or others of the node that do as well; or say why there are none.

    Returns also what the containers are to see of each card. The pod holds in `live` what is returned.
    """
    placement, reservation = planned
    name, until, epoch = placement.node, holder.deadline(), reservation.claims[0].epoch
    node = live.fleet.node(name)
    for _ in range(2 * (1 + (len(node.gpus) if node is not None else 0))):
        answer = await holder.hold(pod, placement, until=until)
        if isinstance(answer, Held):
            return planned, answer.uuids
        if isinstance(answer, NotHeld):
            return answer.why
        if live.nodes_promised_to(pod.uid):
            return f"another leader has promised cards to {pod.key}"
        held = holder.held_on(name)
        decision = decide_among_cards(
            live, pod, name, None if isinstance(answer, Changed) else frozenset(held)
        )
        if decision is not None and decision.placement is not None and _uses_only(decision, held):
            moved = reservation_of(decision, epoch=epoch)
            live.end_hold(pod.uid)
            live.hold(moved)
            return (decision.placement, moved), held
        if isinstance(answer, Elsewhere) and answer.final:
            return answer.final
    return f"kubelet on {name} gave no card that {pod.key} could use"


def _uses_only(decision: Decision, held: Mapping[str, str]) -> bool:
    return decision.placement is not None and {gpu.uuid for gpu in decision.placement.gpus} <= held.keys()


def decide_among_cards(live: LiveState, pod: Pod, node: str, cards: frozenset[str] | None) -> Decision | None:
    """Decide about cards of a node (None: all), as if the pod had no promise; None: there is no such card."""
    there = live.fleet.node(node)
    if pod.ask is None or there is None:
        return None
    every = frozenset(gpu.uuid for gpu in there.gpus) if cards is None else cards
    wanted = every & set(pod.ask.constraints.use_uuids) if pod.ask.constraints.use_uuids else every
    if not wanted:
        return None
    alone = live.view_of(node, pod).copy()
    alone.remove_claims(pod.uid)
    return decide(alone, _among(pod.ask, wanted), live.rules_for(pod.ask), now=live.now())


def _among(ask: Ask, cards: frozenset[str]) -> Ask:
    constraints = msgspec.structs.replace(ask.constraints, use_uuids=tuple(sorted(cards)))
    return msgspec.structs.replace(ask, constraints=constraints)
