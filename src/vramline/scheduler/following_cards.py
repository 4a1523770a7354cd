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
from vramline.scheduler.one_node import open_to

__all__ = ["Planned", "decide_among_cards", "find_cards"]

Planned = tuple[Placement, Reservation]
"""Where the pod goes, and what it is to claim there."""


async def find_cards(
    live: LiveState, holder: CardHolder, pod: Pod, planned: Planned
) -> tuple[Planned, dict[str, str]] | str:
    """Have the planned cards held, or others of the node that do as well; or say why there are none.

    Returns also what the containers are to see of each card. The pod holds in `live` what is returned.
    Whatever has changed while kubelet was waited for, the ask fits there by what is known at the end.
    """
    placement, reservation = planned
    judged = live.fleet.generation
    name, until, epoch = placement.node, holder.deadline(), reservation.claims[0].epoch
    node = live.fleet.node(name)
    for _ in range(2 * (1 + (len(node.gpus) if node is not None else 0))):
        answer = await holder.hold(pod, placement, until=until)
        if isinstance(answer, Held) and (
            live.fleet.generation == judged or _still_fits(live, pod, placement)
        ):
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
        if final := _why_final(answer, pod, name):
            return final
    return f"kubelet on {name} gave no card that {pod.key} could use"


def _why_final(answer: Held | Elsewhere | Changed, pod: Pod, node: str) -> str:
    """Say why there is no use in another try; empty: there is."""
    if isinstance(answer, Held):
        return f"{pod.key} no longer fits on {node}: that changed while kubelet was asked for a GPU"
    return answer.final if isinstance(answer, Elsewhere) else ""


def _still_fits(live: LiveState, pod: Pod, placement: Placement) -> bool:
    cards = frozenset(share.uuid for share in placement.gpus)
    decision = decide_among_cards(live, pod, placement.node, cards)
    return decision is not None and decision.placement is not None


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
    requests = alone.requests_on(node)
    alone.set_requests(node, {uid: mib for uid, mib in requests.items() if uid != pod.uid})
    only = open_to(alone, node, pod)
    return decide(alone, _among(pod.ask, wanted), live.rules_for(pod.ask), now=live.now(), candidates=only)


def _among(ask: Ask, cards: frozenset[str]) -> Ask:
    constraints = msgspec.structs.replace(ask.constraints, use_uuids=tuple(sorted(cards)))
    return msgspec.structs.replace(ask, constraints=constraints)
