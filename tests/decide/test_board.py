"""What is kept from decision to decision never changes an answer, whatever happened in between."""

from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ask, claim, fleet_of, gpu, node
from explain.worlds import ANY_RULES, wishes
from strategies import NOW, fleets, nodes, observations
from vramline.decide.board import board_of
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.decide.scene import scene_of
from vramline.model.ask import Ask, PolicyName, RealtimeMode
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.mix import Mix, class_of
from vramline.model.pod import HostNeeds
from vramline.model.rules import Rules

ARRAYS = ("row_codes", "node_codes", "scores", "sizes", "free", "observed", "fitting", "lacking")


def said(decision: Decision) -> dict[str, Any]:
    """Everything in a decision, as plain values."""
    told = {name: getattr(decision, name).tolist() for name in ARRAYS}
    return told | {
        "placement": decision.placement,
        "nominated": decision.nominated,
        "mode": decision.mode,
        "warnings": decision.warnings,
    }


def from_scratch(fleet: Fleet, wish: Ask, rules: Rules, now: float) -> Decision:
    forgetful = fleet.copy()
    forgetful.remembered.clear()
    return decide(forgetful, wish, rules, now=now)


class History:
    """A fleet to which things happen, and what was decided about it before."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.now = NOW
        self.pods = 0
        self.before: list[tuple[Decision, dict[str, Any]]] = []
        fleet.hosts = HostColumns()
        for each in fleet.nodes:
            fleet.hosts.set_node(int(fleet.node_numbers([each.name])[0]), each)

    def happen(self, data: st.DataObject) -> None:
        """Something changes."""
        happenings = (self.pod_leaves, self.card_is_seen, self.node_changes, self.time_passes, self.cpu_goes)
        data.draw(st.sampled_from(happenings))(data)

    def decided(self, data: st.DataObject, wish: Ask, rules: Rules) -> None:
        """A pod asks; sometimes it gets what it asks for."""
        wish = msgspec.structs.replace(wish, pod=f"ns/{self.pods}", pod_uid=f"new-{self.pods}")
        self.pods += 1
        expected = said(from_scratch(self.fleet, wish, rules, self.now))
        assert said(decide(self.fleet.copy(), wish, rules, now=self.now)) == expected
        decision = decide(self.fleet, wish, rules, now=self.now)
        assert said(decision) == expected
        self.before.append((decision, expected))
        if decision.placement is not None and data.draw(st.booleans()):
            self.fleet.reserve(reservation_of(decision))
            self.fleet.pod_bound(wish.pod_uid)

    def pod_leaves(self, data: st.DataObject) -> None:
        pods = sorted({each.pod_uid for each in self.fleet.ledger})
        if pods:
            uid = data.draw(st.sampled_from(pods))
            data.draw(st.sampled_from([self.fleet.remove_claims, self.fleet.pod_deleted]))(uid)

    def card_is_seen(self, data: st.DataObject) -> None:
        cards = sorted(self.fleet.columns.row_of)
        if cards:
            uuid = data.draw(st.sampled_from(cards))
            self.fleet.observe(uuid, data.draw(observations(16_384, at=self.now)))

    def node_changes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(["n0", "n1", "n9"]))
        if self.fleet.node(name) is not None and data.draw(st.booleans()):
            self.fleet.remove_node(name)
            return
        mode = data.draw(st.sampled_from([None, None, *RealtimeMode]))
        changed = msgspec.structs.replace(data.draw(nodes(name)), realtime=mode)
        self.fleet.set_node(changed)
        if self.fleet.hosts is not None:
            self.fleet.hosts.set_node(int(self.fleet.node_numbers([name])[0]), changed)

    def time_passes(self, data: st.DataObject) -> None:
        self.now += data.draw(st.sampled_from([0.001, 30.0, 91.0]))

    def cpu_goes(self, data: st.DataObject) -> None:
        names = sorted(each.name for each in self.fleet.nodes)
        if names and self.fleet.hosts is not None:
            number = int(self.fleet.node_numbers([data.draw(st.sampled_from(names))])[0])
            self.fleet.hosts.take(number, HostNeeds(cpu_milli=data.draw(st.sampled_from([500, 64_000]))))


@given(
    st.data(),
    fleets(),
    st.lists(wishes(), min_size=2, max_size=3),
    st.lists(ANY_RULES, min_size=1, max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_a_decision_says_what_it_would_say_from_scratch_after_any_history(
    data: st.DataObject, fleet: Fleet, asked: list[Ask], rules: list[Rules]
) -> None:
    history = History(fleet)
    fleet.mix = Mix({class_of(wish): 40 - 10 * place for place, wish in enumerate(asked)})
    for _ in range(data.draw(st.integers(3, 12))):
        history.happen(data)
        history.decided(data, data.draw(st.sampled_from(asked)), data.draw(st.sampled_from(rules)))

    assert all(said(decision) == then for decision, then in history.before), (
        "a decision does not change later"
    )


def test_only_nodes_that_changed_are_judged_again() -> None:
    fleet = fleet_of(*(node(f"n{i}", gpu(f"GPU-{i}", 10_100)) for i in range(6)))
    scene = scene_of(fleet, Rules(), now=NOW)
    seen = scene.changes.version

    fleet.adopt([claim(1_000, gpu="GPU-2")])
    scene = scene_of(fleet, Rules(), now=NOW)

    assert scene.changes.since(seen).tolist() == [2]
    assert scene_of(fleet, Rules(), now=NOW).changes.since(scene.changes.version).tolist() == []


def test_arrays_are_copied_only_while_somebody_holds_the_decision_before() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))
    held = decide(fleet, ask(4_000), Rules(), now=NOW)
    kept = held.row_codes

    fleet.adopt([claim(30_000, gpu="GPU-a")])
    first = decide(fleet, ask(4_000), Rules(), now=NOW).row_codes
    fleet.adopt([claim(30_000, "ns/b", gpu="GPU-b")])
    second = decide(fleet, ask(4_000), Rules(), now=NOW).row_codes

    assert first is not kept
    assert second is first
    assert not kept.any()


def test_a_board_is_shared_by_asks_that_differ_in_nothing_but_the_pod() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")))
    scene = scene_of(fleet, Rules(), now=NOW)

    boards = {
        id(board_of(fleet, scene, wish, now=NOW))
        for wish in (ask(4_000), ask(4_000, pod="ns/b"), ask(4_001), ask(4_000, gpus=2))
    }

    assert len(boards) == 3
    assert np.array_equal(board_of(fleet, scene, ask(4_000), now=NOW).row_codes, [0])
    assert PolicyName.VRAMLINE is board_of(fleet, scene, ask(4_000), now=NOW).policy


def test_many_nodes_weighed_together_cost_what_each_costs_alone() -> None:
    """Where many are weighed, those in the same state are weighed once; one by one, nobody looks for such."""
    chance = np.random.default_rng(5)
    fleet = fleet_of(
        *(node(f"n{n:03}", *(gpu(f"GPU-{n:03}-{i}", 10_100) for i in range(4))) for n in range(230))
    )
    fleet.adopt(
        claim(int(chance.choice((2_000, 5_000))), f"ns/{n}-{i}", gpu=f"GPU-{n:03}-{i}", cores=int(cores))
        for n in range(230)
        for i in range(4)
        if chance.random() < 0.4 and (cores := chance.choice((0, 100))) >= 0
    )
    for cards in (1, 2):
        wish = msgspec.structs.replace(ask(4_000, gpus=cards), cores=10)
        fleet.mix = Mix({class_of(wish): 30, class_of(ask(9_000)): 20})
        together = decide(fleet, wish, Rules(), now=NOW).scores.tolist()
        alone = together
        for number in range(230):
            fleet.columns.changes.note(number)
            alone = decide(fleet, wish, Rules(), now=NOW).scores.tolist()

        assert alone == together
        assert len(set(together)) > 2
