"""The state of one card, and of one node: where the memory is, as of now, whatever is asked."""

from collections.abc import Iterator

import msgspec

from vramline.errors import InvariantError
from vramline.explain.figures import Basis, Figures, age_at, figures_at, is_fresh, requested_on, reserved_in
from vramline.explain.ghosts import ghosts_on, say_ghost, say_strangers
from vramline.explain.text import clip, seconds
from vramline.model.claim import Claim, ClaimState
from vramline.model.fleet import Fleet
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.node import InventorySource, NodeProblem
from vramline.model.observation import Observation, Unknown
from vramline.units import format_mib

__all__ = ["CardClaim", "CardState", "NodeState", "card_state", "node_state"]


class CardClaim(msgspec.Struct, frozen=True):
    """What one pod holds on a card."""

    pod: str
    mib: int
    state: ClaimState


class CardState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory of one physical GPU is, in MiB; None: nobody could tell.

    Always `usable − margin − held − unmanaged == free`, where an unmanaged figure of None counts as
    nothing; `basis` is "books" then.
    """

    node: str
    uuid: str
    index: int
    model: str
    total_mib: int
    usable_mib: int
    held_mib: int
    releasing_mib: int
    """Part of `held_mib`: pods that are ending and not proved gone."""
    reserved_mib: int
    """Part of `held_mib`: reserved in advance, for pods that are yet to come."""
    requested_mib: int = 0
    """Part of `held_mib`: requested by pods as memory of a machine whose GPU takes from it."""
    unmanaged_mib: int | None
    margin_mib: int
    free_mib: int
    """Negative on a card that holds more than it can promise."""
    slots: int | None
    """How many pods may share the card; None: no such limit."""
    basis: Basis
    health: Health
    cordoned: bool
    used_mib: int | None
    """What the card said last, however long ago."""
    utilization_percent: int | None
    observed_age_s: float | None
    """Age of what the card said last; None: it never told how much is in use."""
    source: str | None
    """Who looked last, such as `agent's stream`; None: nobody ever did."""
    unmanaged_is_lower_bound: bool
    """Whether `unmanaged_mib` may be more, because not every process could be attributed."""
    claims: list[CardClaim]
    notes: list[str]
    """What a reader should know about this card, one sentence each."""


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node and the sums over its cards; they obey the same equation as the figures of a card."""

    node: str
    ready: bool
    cordoned: bool
    physical: int
    """Cards that own memory."""
    advertised: int | None
    """Devices that kubelet advertises, replicas counted one by one; None: it says nothing."""
    source: InventorySource
    problem: NodeProblem | None
    total_mib: int
    usable_mib: int
    held_mib: int
    releasing_mib: int
    unmanaged_mib: int | None
    """Over the cards that told; None: none did."""
    margin_mib: int
    free_mib: int
    largest_free_mib: int | None
    """The most that one card can still promise; None: there is no card."""
    slots: int | None
    """Sum over the cards; None: one of them has no limit, or there is no card."""
    by_books: int
    """How many cards are counted by the books alone."""
    pods: int
    """How many pods hold memory here."""


def card_state(
    fleet: Fleet, uuid: str, *, now: float, max_age_s: float, grace_s: float | None = None
) -> CardState:
    """Say where the memory of a card of this fleet is.

    A look older than `max_age_s` does not count: the figures are then those of the books and unmanaged
    memory is None. With `grace_s`, the notes name pods that ended longer ago and still hold memory.
    """
    row = fleet.columns.row_of.get(uuid)
    if row is None:
        raise InvariantError(f"no GPU {uuid} in the fleet")
    gpu, seen = fleet.columns.card(row), fleet.observation(uuid)
    age_s = age_at(fleet, row, now=now)
    figures = figures_at(fleet, row, observed=is_fresh(fleet, row, now=now, max_age_s=max_age_s))
    claims = fleet.ledger.of_card(uuid)
    notes = [*_notes_of_card(fleet, gpu), *_notes_of_figures(figures, age_s), *_notes_of_claims(claims, seen)]
    ghosts = ghosts_on(fleet, uuid, now=now, max_age_s=max_age_s)
    notes += map(say_ghost, ghosts)
    notes += _notes_of_reservations(claims, now=now)
    if requested := requested_on(fleet, uuid):
        notes.append(f"{format_mib(requested)} are requested by pods as memory of the machine")
    if grace_s is not None:
        shown = {ghost.pod for ghost in ghosts}
        hidden = tuple(claim for claim in claims if claim.pod not in shown)
        notes += _notes_of_ghosts(hidden, ended_before=now - grace_s, now=now)
    if seen is not None and figures.basis == "observed":
        notes += say_strangers(claims, seen)
    return CardState(
        node=gpu.node,
        uuid=uuid,
        index=gpu.index,
        model=gpu.model,
        total_mib=gpu.total,
        usable_mib=figures.usable,
        held_mib=figures.held,
        releasing_mib=figures.releasing,
        reserved_mib=reserved_in(claims),
        requested_mib=requested,
        unmanaged_mib=figures.unmanaged,
        margin_mib=figures.margin,
        free_mib=figures.free,
        slots=gpu.slots,
        basis=figures.basis,
        health=gpu.health,
        cordoned=gpu.cordoned,
        used_mib=_used(seen),
        utilization_percent=_utilization(seen),
        observed_age_s=age_s,
        source=None if seen is None else seen.source.value,
        unmanaged_is_lower_bound=figures.basis == "observed" and fleet.account(uuid).unmanaged_is_lower_bound,
        claims=[CardClaim(claim.pod, claim.mib, claim.state) for claim in claims],
        notes=notes,
    )


def node_state(fleet: Fleet, name: str, *, now: float, max_age_s: float) -> NodeState:
    """Say where the memory of a node of this fleet is, summed over its cards."""
    node = fleet.node(name)
    if node is None:
        raise InvariantError(f"no node {name} in the fleet")
    cards = [card_state(fleet, gpu.uuid, now=now, max_age_s=max_age_s) for gpu in node.gpus]
    told = [card.unmanaged_mib for card in cards if card.unmanaged_mib is not None]
    limits = [gpu.slots for gpu in node.gpus if gpu.slots is not None]
    return NodeState(
        node=name,
        ready=node.ready,
        cordoned=node.cordoned,
        physical=len(cards),
        advertised=node.advertised,
        source=node.source,
        problem=node.problem,
        total_mib=sum(card.total_mib for card in cards),
        usable_mib=sum(card.usable_mib for card in cards),
        held_mib=sum(card.held_mib for card in cards),
        releasing_mib=sum(card.releasing_mib for card in cards),
        unmanaged_mib=sum(told) if told else None,
        margin_mib=sum(card.margin_mib for card in cards),
        free_mib=sum(card.free_mib for card in cards),
        largest_free_mib=max((card.free_mib for card in cards), default=None),
        slots=sum(limits) if limits and len(limits) == len(cards) else None,
        by_books=sum(card.basis == "books" for card in cards),
        pods=len({claim.pod_uid for gpu in node.gpus for claim in fleet.ledger.of_card(gpu.uuid)}),
    )


def _used(seen: Observation | None) -> int | None:
    return None if seen is None or isinstance(seen.used, Unknown) else seen.used


def _utilization(seen: Observation | None) -> int | None:
    return None if seen is None or isinstance(seen.utilization_percent, Unknown) else seen.utilization_percent


def _notes_of_card(fleet: Fleet, gpu: PhysicalGpu) -> Iterator[str]:
    """Say why no new pod at all may get this card."""
    node = fleet.node(gpu.node)
    if node is not None and node.problem is not None:
        yield f"no new pods: {node.problem.kind}, {clip(node.problem.detail)}"
    if gpu.mig:
        yield "no new pods: partitioned by MIG, its memory belongs to its instances"
    if gpu.health is not Health.HEALTHY:
        yield f"no new pods: health is {gpu.health}"
    if gpu.cordoned:
        yield "no new pods: cordoned by an operator"


def _notes_of_figures(figures: Figures, age_s: float | None) -> Iterator[str]:
    if figures.basis == "books" and age_s is not None:
        yield f"counted by the books: the last observation is {seconds(age_s)} old"
    if figures.free < 0:
        yield f"over-committed by {format_mib(-figures.free)}"


def _notes_of_claims(claims: tuple[Claim, ...], seen: Observation | None) -> Iterator[str]:
    """Name pods that were seen to use more than they claimed."""
    if seen is None or isinstance(seen.processes, Unknown):
        return
    for claim in claims:
        used = sum(
            process.used
            for process in seen.processes
            if process.pod_uid == claim.pod_uid and not isinstance(process.used, Unknown)
        )
        if used > claim.mib:
            yield f"{claim.pod} uses {format_mib(used)}, {format_mib(used - claim.mib)} more than it claimed"


def _notes_of_reservations(claims: tuple[Claim, ...], *, now: float) -> Iterator[str]:
    for claim in claims:
        if claim.until is not None:
            rest = seconds(max(0.0, claim.until - now))
            yield f"{format_mib(claim.mib)} are reserved in advance for {claim.pod}, for {rest} more"


def _notes_of_ghosts(claims: tuple[Claim, ...], *, ended_before: float, now: float) -> Iterator[str]:
    """Name pods that should be gone by now."""
    for claim in claims:
        if (
            claim.state is ClaimState.RELEASING
            and claim.ended_at is not None
            and claim.ended_at < ended_before
        ):
            yield (
                f"{claim.pod} ended {seconds(now - claim.ended_at)} ago and nothing shows that its"
                f" {format_mib(claim.mib)} are free"
            )
