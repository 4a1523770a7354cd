"""Inventory, ledger and observations together, kept in step with the columns.

`Fleet` is the one mutable state of a scheduler. Its owner calls it from one task only; between `decide`
and `reserve` there is no await, so that what was decided is still true when it is recorded.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.errors import InvariantError
from vramline.model.claim import Claim, ClaimEvent, ClaimState, next_state
from vramline.model.columns import GpuColumns
from vramline.model.counts import CardCount
from vramline.model.gpu import PhysicalGpu
from vramline.model.host import HostColumns
from vramline.model.law import Account, take_account
from vramline.model.ledger import CardLimits, Ledger, Reservation
from vramline.model.mix import Mix
from vramline.model.node import Node, NodeProblem
from vramline.model.observation import Observation, ObservationSource, Unknown
from vramline.model.places import NOT_HERE, NodeNumbers, Place, code_of
from vramline.model.ranks import Ranks, rank_nodes
from vramline.model.reason import CODE_OF, Reason
from vramline.model.recount import Books, count_again
from vramline.model.release import ReleaseProof, prove_release
from vramline.units import Mib

__all__ = ["DEFAULT_MARGIN", "NOT_HERE", "Fleet", "Released"]

DEFAULT_MARGIN = Mib(100)


class Released(msgspec.Struct, frozen=True):
    """A claim that was let go, and on what evidence."""

    claim: Claim
    proof: ReleaseProof


class Fleet:
    """Every node and card, every claim, every observation."""

    def __init__(self, margin: Mib = DEFAULT_MARGIN, columns: GpuColumns | None = None) -> None:
        self.margin = margin
        self.ledger = Ledger()
        self.columns = GpuColumns() if columns is None else columns
        self.generation = 0
        """Grows with every change of anything; a decision is about exactly one generation."""
        self.mix = Mix()
        """What pods usually ask for."""
        self.thinks_in_steps = False
        """Whether a new mix is thought through over several decisions; what is known counts until then."""
        self.hosts: HostColumns | None = None
        """What is left of each node besides GPUs, by node number; None: nobody counts it here."""
        self.is_picture = False
        """Whether this is but one node of another fleet."""
        self.remembered: dict[str, Any] = {}
        """What `decide` keeps to be quick; nothing else depends on it, and each says by itself for what state
        of the fleet it holds. `fork()` of each returns the same for a copy of the fleet."""
        self._places: dict[str, Place] = {}
        self._numbers = NodeNumbers()
        self._observations: dict[str, Observation] = {}
        self._requests: dict[str, Mapping[str, Mib]] = {}
        self._picture: tuple[str, int, Fleet] | None = None
        self._uncounted: set[str] = set()
        self._gathered: set[str] | None = None
        self._ranks: Ranks | None = None
        self._node_codes: npt.NDArray[np.int8] | None = None

    def copy(self) -> "Fleet":
        """Return the same fleet, to try something on. Neither notices what happens to the other."""
        copy = Fleet(self.margin)
        copy.ledger, copy.columns, copy.generation = self.ledger.copy(), self.columns.copy(), self.generation
        copy.mix, copy.hosts, copy.thinks_in_steps = self.mix, self.hosts, self.thinks_in_steps
        copy.remembered = {name: each.fork() for name, each in self.remembered.items()}
        copy._places = {name: place.copy() for name, place in self._places.items()}
        copy._numbers = self._numbers.copy()
        copy._observations, copy._requests = dict(self._observations), dict(self._requests)
        return copy

    def only(self, name: str) -> "Fleet":
        """Return a picture of one node as it is now, as a fleet of its own that is only to be read.

        Whether a node can take an ask depends on that node alone, so asking about one costs no more in a
        large fleet than in a small one, and can be done later, about now.
        """
        if self._picture is not None and self._picture[:2] == (name, self.generation):
            return self._picture[2]
        place = self._places[name]
        cards = [gpu.uuid for gpu in place.node.gpus]
        alone = Fleet(self.margin, None if place.block is None else self.columns.only(place.block))
        alone.generation, alone.ledger = self.generation, self.ledger.only(cards)
        alone._observations = {uuid: self._observations[uuid] for uuid in cards if uuid in self._observations}
        alone._requests = {name: self._requests[name]} if name in self._requests else {}
        alone.is_picture, alone.mix = True, self.mix
        if "prospects" in self.remembered:
            alone.remembered["prospects"] = self.remembered["prospects"]
        alone.hosts = None if self.hosts is None else self.hosts.only(place.number)
        alone._numbers = NodeNumbers((name,))
        alone._places[name] = Place(0, place.node)
        alone._places[name].block = None if place.block is None else 0
        self._picture = name, self.generation, alone
        return alone

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────

    @property
    def nodes(self) -> Iterable[Node]:
        """Every node, in no promised order."""
        return (place.node for place in self._places.values())

    @property
    def node_count(self) -> int:
        """Length of arrays indexed by node number; numbers of nodes that left are among them."""
        return len(self._numbers.names)

    @property
    def names_version(self) -> int:
        """Grows when a node gets a number or loses it."""
        return self._numbers.version

    def node(self, name: str) -> Node | None:
        """Return a node by name."""
        place = self._places.get(name)
        return None if place is None else place.node

    def node_number(self, name: str) -> int | None:
        """Return a node's index in node arrays."""
        place = self._places.get(name)
        return None if place is None else place.number

    def node_numbers(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the index of each node, `NOT_HERE` for names of no node. Not to be written to.

        The same tuple again, while no node came or left, costs nothing.
        """
        return self._numbers.of(names)

    def names_by_number(self) -> Sequence[str | None]:
        """Return every node's name; None: nobody has this number now. Not to be written to."""
        return self._numbers.names

    def name_of(self, number: int) -> str:
        """Return the name of a node by its index."""
        name = self._numbers.names[number]
        if name is None:
            raise InvariantError(f"node number {number} is not in use")
        return name

    def block_of(self, number: int) -> int:
        """Return the block of columns that holds a node's cards."""
        block = self._places[self.name_of(number)].block
        if block is None:
            raise InvariantError(f"node number {number} has no cards")
        return block

    @property
    def live_count(self) -> int:
        """How many nodes are there."""
        return len(self._places)

    def live_numbers(self) -> npt.NDArray[np.int64]:
        """Return the indices of all nodes that are there."""
        return self.ranks().live

    def rank(self) -> npt.NDArray[np.int64]:
        """Return each node's rank by name, indexed by node number: the stable tie-break."""
        return self.ranks().rank

    def ranks(self) -> Ranks:
        """Return the stable order of all nodes."""
        if self._ranks is None:
            self._ranks = rank_nodes(self._numbers.names)
        return self._ranks

    def node_codes(self) -> npt.NDArray[np.int8]:
        """Return, by node number, FITS or why no GPU ask at all can go to the node. Not to be written to."""
        if self._node_codes is None:
            codes = np.full(self.node_count, CODE_OF[Reason.NOT_A_CANDIDATE], dtype=np.int8)
            for place in self._places.values():
                codes[place.number] = code_of(place.node)
            self._node_codes = codes
        return self._node_codes

    def set_node(self, node: Node) -> None:
        """Add a node or replace what is known of it. Claims and observations of its cards stay."""
        owner = self.owner_of_any(node)
        if owner is not None:
            raise InvariantError(f"GPU {owner.uuid} is on {owner.node} and on {node.name}")
        place = self._places.get(node.name)
        if place is None:
            self.add_nodes((node,))
            return
        self.generation += 1
        if place.block is not None and place.node.gpus != node.gpus:
            self.columns.drop_block(place.block)
            place.block = None
        if code_of(place.node) != code_of(node):
            self._node_codes = None
        had_problem, place.node = place.node.problem is not None, node
        if node.gpus and place.block is None:
            self._give_rows((place,))
        if had_problem or node.problem is not None:
            self._write_problem(place)
        if place.block is not None:
            self.columns.set_node_mode(place.block, node.realtime, enabled=node.realtime_enabled)

    def add_nodes(self, nodes: Sequence[Node]) -> None:
        """Add nodes that are not here, with cards that nobody else has."""
        self.generation += 1
        self._ranks = self._node_codes = None
        places = list(map(Place, self._numbers.give([node.name for node in nodes]), nodes))
        self._places.update((place.node.name, place) for place in places)
        self._give_rows([place for place in places if place.node.gpus])
        for place in places:
            node = place.node
            if node.problem is not None:
                self._write_problem(place)
            if place.block is not None and (node.realtime is not None or node.realtime_enabled):
                self.columns.set_node_mode(place.block, node.realtime, enabled=node.realtime_enabled)

    def freeze(self, name: str, problem: NodeProblem) -> None:
        """Stop handing out a node's GPUs. The first problem of a node is the one it keeps."""
        place = self._places[name]
        if place.node.problem is None:
            self.set_node(msgspec.structs.replace(place.node, problem=problem))

    def remove_node(self, name: str) -> None:
        """Forget a node that left the cluster. Its claims stay until their pods are gone."""
        self.generation += 1
        place = self._places.pop(name)
        if place.block is not None:
            self.columns.drop_block(place.block)
        for gpu in place.node.gpus:
            self._observations.pop(gpu.uuid, None)
        self._requests.pop(name, None)
        self._numbers.take_back(name)
        self._ranks = None
        self._node_codes = None

    def requests_on(self, name: str) -> Mapping[str, Mib]:
        """Return what pods have requested of a machine whose GPU takes from its memory, by pod UID."""
        return self._requests.get(name, {})

    def set_requests(self, name: str, requests: Mapping[str, Mib]) -> None:
        """Say what the pods on such a machine have requested; the mapping is not to be changed afterwards."""
        node = self.node(name)
        if node is not None and self.requests_on(name) != requests:
            self.generation += 1
            self._requests[name] = requests
            self._recount(gpu.uuid for gpu in node.gpus)

    # ── cards ────────────────────────────────────────────────────────────────────────────────────

    def gpu(self, uuid: str) -> PhysicalGpu | None:
        """Return a card by UUID."""
        row = self.columns.row_of.get(uuid)
        return None if row is None else self.columns.card(row)

    def owner_of_any(self, node: Node) -> PhysicalGpu | None:
        """Return the first of a node's cards that another node has, as it is there."""
        known = [gpu.uuid for gpu in node.gpus]
        if self.columns.row_of.keys().isdisjoint(known):
            return None
        return next((card for card in map(self.gpu, known) if card and card.node != node.name), None)

    def observation(self, uuid: str) -> Observation | None:
        """Return the newest look at a card."""
        return self._observations.get(uuid)

    def account(self, uuid: str) -> Account:
        """Apply the memory law to a card of this fleet."""
        row = self.columns.row_of.get(uuid)
        if row is None:
            raise InvariantError(f"no GPU {uuid} in the fleet")
        return self._count(row).account

    def observe(self, uuid: str, observation: Observation) -> None:
        """Take in a look at a card; one that is older than what is known changes nothing."""
        known = self._observations.get(uuid)
        if known is None or observation.at >= known.at:
            self.show(uuid, observation)

    def observe_all(self, seen: Mapping[str, Observation]) -> None:
        """Take in looks at many cards."""
        new = seen
        if not self._observations.keys().isdisjoint(seen):
            new = {uuid: look for uuid, look in seen.items() if uuid not in self._observations}
            for uuid in seen.keys() - new.keys():
                self.observe(uuid, seen[uuid])
        if new:
            self.generation += 1
            self._observations.update(new)
            self._recount(new)

    def show(self, uuid: str, observation: Observation) -> None:
        """Let this look at a card count, even where a newer one is known, whose source fell silent."""
        known = self._observations.get(uuid)
        self._observations[uuid] = observation
        row = self.columns.row_of.get(uuid)
        if row is not None and known is not None and self._goes_on(uuid, known, observation):
            self.columns.write_observation(row, self.columns.card(row), observation)
            self._picture = None  # nothing that counts has changed, but a picture would grow old
            return
        self.generation += 1
        self._recount((uuid,))

    def see_again(
        self,
        name: str,
        *,
        at: float,
        void_at: float,
        source: ObservationSource,
        utilization: Mapping[str, int | Unknown],
    ) -> bool:
        """All cards of a node were seen again, and their memory as it was; when, and how busy, is new.

        False: it is not that simple, because something else has to be counted anew. Nothing has changed then.
        """
        place = self._places[name]
        if place.block is None:
            return False
        renewed = {}
        for gpu in place.node.gpus:
            known = self._observations.get(gpu.uuid)
            if known is None or not known.at <= at < known.void_at < math.inf:
                return False
            if any(c.ran_before(known.at) != c.ran_before(at) for c in self.ledger.of_card(gpu.uuid)):
                return False
            renewed[gpu.uuid] = Observation(
                at=at,
                used=known.used,
                processes=known.processes,
                utilization_percent=utilization[gpu.uuid],
                temperature_c=known.temperature_c,
                source=source,
                void_at=void_at,
            )
        self._observations.update(renewed)
        self._picture = None
        self.columns.write_times(place.block, at=at, void_at=void_at, utilization=utilization)
        return True

    # ── claims ───────────────────────────────────────────────────────────────────────────────────

    def reserve(self, reservation: Reservation) -> None:
        """Record a decision. Raises `InvariantError`, changing nothing, if it would over-promise."""
        limits: dict[str, CardLimits] = {}
        for claim in reservation.claims:
            gpu = self.gpu(claim.gpu)
            if gpu is None or gpu.node != reservation.node:
                raise InvariantError(f"{claim.pod}: no GPU {claim.gpu} on {reservation.node}")
            limits[claim.gpu] = CardLimits(Mib(gpu.usable - self.margin), gpu.slots, gpu.cores)
        self.ledger.apply(reservation, limits)
        self._refresh_cards(reservation.claims)

    def adopt(self, claims: Iterable[Claim]) -> None:
        """Record claims that exist already, fitting or not."""
        claims = tuple(claims)
        if claims:
            self.ledger.adopt(claims)
            self._refresh_cards(claims)

    def remove_claims(self, pod_uid: str) -> tuple[Claim, ...]:
        """Forget a pod's claims: it was never bound, or its memory is proved free."""
        removed = self.ledger.remove(pod_uid)
        self._refresh_cards(removed)
        return removed

    def clear_claims_of_node(self, name: str) -> None:
        """Forget every claim on a node's cards, to derive them anew."""
        node = self.node(name)
        removed = [claim for gpu in (node.gpus if node else ()) for claim in self.ledger.clear_card(gpu.uuid)]
        if removed:
            self._refresh_cards(removed)

    def pod_bound(self, pod_uid: str) -> None:
        """The binding was written. What the cards hold is the same as before."""
        self.generation += 1
        self.ledger.adopt(
            msgspec.structs.replace(claim, state=next_state(claim.state, ClaimEvent.BIND))
            for claim in self.ledger.of_pod(pod_uid)
        )

    def pod_started(self, pod_uid: str, *, at: float) -> None:
        """Containers of the pod run."""
        self._advance(pod_uid, ClaimEvent.START, started_at=at)

    def pod_deleted(self, pod_uid: str) -> None:
        """Deletion was asked for; containers may still run. A second call changes nothing."""
        if any(claim.state is not ClaimState.RELEASING for claim in self.ledger.of_pod(pod_uid)):
            self._advance(pod_uid, ClaimEvent.DELETE)

    def pod_ended(self, pod_uid: str, *, at: float) -> None:
        """All containers have ended, or the object vanished. Only now can memory become free."""
        self.pod_deleted(pod_uid)
        changed = []
        for claim in self.ledger.of_pod(pod_uid):
            if claim.ended_at is None:
                seen = self._observations.get(claim.gpu)
                used = None if seen is None or isinstance(seen.used, Unknown) else seen.used
                changed.append(msgspec.structs.replace(claim, ended_at=at, used_at_end=used))
        self.adopt(changed)

    def settle(self, *, now: float, grace_s: float, max_age_s: float) -> list[Released]:
        """Let go of releasing claims whose memory is proved free. A pod goes when all its cards agree."""
        proofs: dict[str, list[Released | None]] = {}
        for claim in self.ledger.releasing():
            seen = self._observations.get(claim.gpu)
            proof = prove_release(claim, seen, now=now, grace_s=grace_s, max_age_s=max_age_s)
            proofs.setdefault(claim.pod_uid, []).append(None if proof is None else Released(claim, proof))
        released: list[Released] = []
        for pod_uid, found in proofs.items():
            if all(found):
                released.extend(proof for proof in found if proof is not None)
                self.remove_claims(pod_uid)
        return released

    @contextmanager
    def gathering(self, *, counts: bool = True) -> Iterator[None]:
        """Count cards that change in this block at its end, or at that of the next; nobody decides before."""
        self._gathered = self._uncounted
        try:
            yield
        finally:
            self._gathered = None
            if counts:
                self._count_all()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _advance(self, pod_uid: str, event: ClaimEvent, **changes: Any) -> None:  # noqa: ANN401 — fields of Claim
        self.adopt(
            msgspec.structs.replace(claim, state=next_state(claim.state, event), **changes)
            for claim in self.ledger.of_pod(pod_uid)
        )

    def _refresh_cards(self, claims: Iterable[Claim]) -> None:
        self.generation += 1
        self._recount({claim.gpu for claim in claims}, seen=False)

    def _recount(self, uuids: Iterable[str], *, seen: bool = True) -> None:
        """Write anew what is counted, and `seen`, of these cards; while changes are gathered, at the end."""
        if self._gathered is not None:
            self._gathered.update(uuids)
            return
        for uuid in uuids:
            row = self.columns.row_of.get(uuid)
            if row is not None:
                self.columns.write_count(self._count(row), seen=seen)

    def _count_all(self) -> None:
        uuids, self._uncounted = self._uncounted, set()
        books = Books(self.ledger, self._observations, self._requests, self.margin)
        count_again(self.columns, uuids, books)

    def _count(self, row: int) -> CardCount:
        gpu = self.columns.card(row)
        claims, seen = self.ledger.of_card(gpu.uuid), self._observations.get(gpu.uuid)
        account = take_account(gpu, claims, seen, self.margin, self.requests_on(gpu.node))
        cores = sum([claim.cores for claim in claims]) if claims else 0
        return CardCount(row, gpu, account, seen, len(claims), cores)

    def _goes_on(self, uuid: str, known: Observation, seen: Observation) -> bool:
        """Whether a stream says of a card what it said a moment ago, so that only its age is new."""
        return (
            seen.at < known.void_at < math.inf
            and seen.used == known.used
            and seen.processes == known.processes
            and all(c.ran_before(known.at) == c.ran_before(seen.at) for c in self.ledger.of_card(uuid))
        )

    def _write_problem(self, place: Place) -> None:
        if place.block is not None:
            problem = place.node.problem
            self.columns.set_static_code(
                place.block, None if problem is None else CODE_OF[Reason(problem.kind.value)]
            )

    def _give_rows(self, places: Sequence[Place]) -> None:
        """Give nodes that have cards rows for them."""
        wanted = [(place.number, place.node.gpus) for place in places]
        for place, block in zip(places, self.columns.add_blocks(wanted, self.margin), strict=True):
            place.block = block
        self._recount([gpu.uuid for place in places for gpu in place.node.gpus])
