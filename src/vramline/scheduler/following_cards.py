"""The claim follows the card: kubelet may give another one than was planned.

Until the binding is written nobody relies on the planned card, so the claim moves to one that is held, in
one write of the ledger, if the ask fits there by every rule. Both cards stay held meanwhile.
"""

from collections.abc import Mapping

import msgspec

from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.ask import Ask
from vramline.model.cluster import BindOutcome
from vramline.model.decision import Decision, Placement
from vramline.model.holding import CardHolder, Changed, Elsewhere, Held, NotHeld
from vramline.model.ledger import Reservation
from vramline.model.pod import Pod
from vramline.scheduler.ledger_desk import LedgerDesk, Lost
from vramline.scheduler.live import LiveState
from vramline.wire.ledger_v1alpha1 import GpuLedger

__all__ = ["decide_among_cards", "find_cards"]

Found = tuple[Placement, GpuLedger, dict[str, str]]
"""Where the pod goes, the ledger that says so, and what its containers are to see."""


async def find_cards(
    live: LiveState, desk: LedgerDesk, holder: CardHolder, pod: Pod, promise: tuple[Placement, GpuLedger]
) -> Found | BindOutcome:
    """Have the promised cards held, or others of the node that do as well; else take the promise back."""
    placement, ledger = promise
    name, until = placement.node, holder.deadline()
    node = live.fleet.node(name)
    refused = f"kubelet on {name} gave no card that {pod.key} could use"
    for _ in range(2 * (1 + (len(node.gpus) if node is not None else 0))):
        answer = await holder.hold(pod, placement, until=until)
        if isinstance(answer, Held):
            return placement, ledger, answer.uuids
        if isinstance(answer, NotHeld):
            refused = answer.why
            break
        held = holder.held_on(name)
        decision = decide_among_cards(
            live, pod, name, None if isinstance(answer, Changed) else frozenset(held)
        )
        if decision is not None and _uses_only(decision, held):
            moved = await _move(live, desk, decision, ledger.epoch)
            if isinstance(moved, GpuLedger) and decision.placement is not None:
                return decision.placement, moved, held
            refused = f"the ledger of {name} was not written"
            break
        if isinstance(answer, Elsewhere) and answer.final:
            refused = answer.final
            break
    await desk.write(name, remove=[pod.uid])
    return BindOutcome(refused)


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


async def _move(live: LiveState, desk: LedgerDesk, decision: Decision, epoch: int) -> GpuLedger | Lost:
    """Move a promise in one write."""
    reservation = reservation_of(decision, epoch=epoch)
    _hold_instead(live, reservation)
    written = await desk.write(reservation.node, remove=[decision.ask.pod_uid], add=reservation.claims)
    return written if isinstance(written, Lost) else written.ledger


def _hold_instead(live: LiveState, reservation: Reservation) -> None:
    """Hold other cards for a pod; the former stay held until the change is stored."""
    before = live.fleet.remove_claims(reservation.claims[0].pod_uid)
    live.fleet.reserve(reservation)
    there = {claim.gpu for claim in reservation.claims}
    live.fleet.adopt(claim for claim in before if claim.gpu not in there)
    live.hold_instead(reservation)
