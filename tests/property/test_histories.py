"""No history of arrivals, departures, looks and node changes breaks the books."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference import World
from strategies import asks, nodes, observations
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.ask import RealtimeMode
from vramline.model.claim import Claim, ClaimState
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import Unknown
from vramline.model.rules import Rules
from vramline.units import Mib

NODES = ("n0", "n1", "n2")


class ClusterLife(RuleBasedStateMachine):
    """Pods come, start, are deleted and end; agents look; nodes change. The reference watches."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.fleet = Fleet()
        self.world = World(self.fleet.margin)
        self.arrived = 0
        self.deficits: dict[str, int] = {}
        """What a card lacked when its node came back smaller than the promises made on it."""
        self.crowd_at_change: dict[str, int] = {}
        """How many pods were on it then."""

    def cards(self) -> list[PhysicalGpu]:
        return [card for node in self.fleet.nodes for card in node.gpus]

    def claims(self, *states: ClaimState) -> list[Claim]:
        return [claim for claim in self.fleet.ledger if claim.state in states]

    def replace(self, pod_uid: str, **changes: object) -> None:
        self.world.claims = [
            msgspec.structs.replace(claim, **changes) if claim.pod_uid == pod_uid else claim
            for claim in self.world.claims
        ]

    @rule(data=st.data(), name=st.sampled_from(NODES))
    def node_comes_or_changes(self, data: st.DataObject, name: str) -> None:
        node = data.draw(nodes(name))
        self.fleet.set_node(node)
        self.world.nodes[name] = node
        for card in node.gpus:
            self.deficits[card.uuid] = min(0, self.world.free_by_books(card))
            self.crowd_at_change[card.uuid] = len(self.world.claims_on(card))

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data())
    def node_leaves(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.nodes)))
        self.fleet.remove_node(name)
        for card in self.world.nodes.pop(name).gpus:
            self.world.observations.pop(card.uuid, None)

    @rule(data=st.data(), mode=st.sampled_from(RealtimeMode))
    def pod_arrives(self, data: st.DataObject, mode: RealtimeMode) -> None:
        self.arrived += 1
        ask = data.draw(asks(f"ns/p{self.arrived}"))
        decision = decide(self.fleet, ask, Rules(mode=mode), now=self.now)
        if mode is RealtimeMode.STRICT:
            chosen = decision.placement
            expected = self.world.place(ask, Rules(), self.now)
            assert (None if chosen is None else (chosen.node, tuple(s.uuid for s in chosen.gpus))) == expected
        if decision.placement is not None:
            reservation = reservation_of(decision)
            self.fleet.reserve(reservation)
            self.world.claims.extend(reservation.claims)

    @precondition(lambda self: self.claims(ClaimState.RESERVED))
    @rule(data=st.data(), bound=st.booleans())
    def pod_is_bound_or_abandoned(self, data: st.DataObject, bound: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims(ClaimState.RESERVED)))
        if bound:
            self.fleet.pod_bound(claim.pod_uid)
            self.replace(claim.pod_uid, state=ClaimState.BOUND)
        else:
            self.fleet.remove_claims(claim.pod_uid)
            self.world.claims = [c for c in self.world.claims if c.pod_uid != claim.pod_uid]

    @precondition(lambda self: self.claims(ClaimState.BOUND))
    @rule(data=st.data())
    def pod_starts(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims(ClaimState.BOUND)))
        self.fleet.pod_started(claim.pod_uid, at=self.now)
        self.replace(claim.pod_uid, state=ClaimState.RUNNING, started_at=self.now)

    @precondition(lambda self: self.claims(ClaimState.BOUND, ClaimState.RUNNING))
    @rule(data=st.data(), ended=st.booleans())
    def pod_is_deleted(self, data: st.DataObject, ended: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims(ClaimState.BOUND, ClaimState.RUNNING)))
        self.fleet.pod_deleted(claim.pod_uid)
        self.replace(claim.pod_uid, state=ClaimState.RELEASING)
        if ended:
            self.fleet.pod_ended(claim.pod_uid, at=self.now)
            self.replace(claim.pod_uid, ended_at=self.now)

    @precondition(lambda self: self.cards())
    @rule(data=st.data())
    def agent_looks(self, data: st.DataObject) -> None:
        card = data.draw(st.sampled_from(self.cards()))
        seen = data.draw(observations(card.total, at=self.now))
        self.fleet.observe(card.uuid, seen)
        self.world.observations[card.uuid] = seen

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        before = {claim.pod_uid: claim for claim in self.fleet.ledger.releasing()}
        for released in self.fleet.settle(now=self.now, grace_s=60.0, max_age_s=90.0):
            claim = released.claim
            assert before[claim.pod_uid].ended_at is not None
            self.world.claims = [c for c in self.world.claims if c.pod_uid != claim.pod_uid]

    @invariant()
    def ledger_holds_what_was_promised_and_nothing_else(self) -> None:
        held = {(claim.pod_uid, claim.gpu): (claim.mib, claim.state) for claim in self.fleet.ledger}

        assert held == {(c.pod_uid, c.gpu): (c.mib, c.state) for c in self.world.claims}
        leaving = {key for key, (_, state) in held.items() if state is ClaimState.RELEASING}
        assert {(claim.pod_uid, claim.gpu) for claim in self.fleet.ledger.releasing()} == leaving

    @invariant()
    def no_card_is_promised_beyond_its_memory(self) -> None:
        for card in self.cards():
            assert self.fleet.account(card.uuid).free_by_books >= self.deficits[card.uuid]
            assert card.slots is None or len(self.fleet.ledger.of_card(card.uuid)) <= max(
                card.slots, self.crowd_at_change.get(card.uuid, 0)
            )

    @invariant()
    def columns_agree_with_the_reference(self) -> None:
        columns = self.fleet.columns
        for card in self.cards():
            row = columns.row_of[card.uuid]
            assert columns.free_books[row] == self.world.free_by_books(card)
            assert columns.claimed_releasing[row] == self.world.releasing(card)
            unmanaged = self.world.unmanaged(card)
            account = self.fleet.account(card.uuid)
            if unmanaged is None:
                assert isinstance(account.unmanaged, Unknown)
            else:
                assert account.unmanaged == Mib(unmanaged)
                expected = self.world.usable(card) - self.fleet.margin - self.world.held(card) - unmanaged
                assert columns.free_observed[row] == expected


ClusterLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestClusterLife = ClusterLife.TestCase
