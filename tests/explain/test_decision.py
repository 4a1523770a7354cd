"""From a decision to its explanation: the arithmetic, the order, the versions."""

import msgspec
import pytest
from hypothesis import given

from builders import ask, claim, fleet_of, gpu, node, observation, process
from explain.worlds import ANY_RULES, wishes
from strategies import NOW, fleets
from vramline.decide.engine import decide
from vramline.errors import InvariantError
from vramline.explain.decision import Alternative, Explanation, explain_decision
from vramline.explain.lines import CardLine, NodeLine
from vramline.model.ask import Ask, PolicyName, RealtimeMode, ShareSize
from vramline.model.claim import ClaimState
from vramline.model.fleet import Fleet
from vramline.model.node import NodeProblem, ProblemKind
from vramline.model.reason import Reason
from vramline.model.rules import Rules


def explained(
    fleet: Fleet, wish: Ask, rules: Rules | None = None, *, most_nodes: int | None = 20
) -> Explanation:
    rules = rules or Rules()
    decision = decide(fleet, wish, rules, now=100.0)
    return explain_decision(fleet, decision, rules, most_nodes=most_nodes)


def test_the_fifth_pod_is_refused_with_its_arithmetic() -> None:
    fleet = fleet_of(node("n1", gpu(slots=100)), claims=[claim(8_000, f"ns/{i}") for i in range(4)])

    assert explained(fleet, ask(8_000)).nodes == [
        NodeLine(
            node="n1",
            fits=False,
            reason=Reason.INSUFFICIENT_VRAM,
            gpus=[
                CardLine(
                    uuid="GPU-a",
                    reason=Reason.INSUFFICIENT_VRAM,
                    ask_mib=8_000,
                    usable_mib=32_600,
                    held_mib=32_000,
                    releasing_mib=0,
                    unmanaged_mib=None,
                    margin_mib=100,
                    free_mib=500,
                    short_mib=7_500,
                    basis="books",
                    observed_age_s=None,
                    model="",
                    slots_left=96,
                    cores_left=100,
                )
            ],
            score=None,
        )
    ]


@pytest.mark.parametrize(
    ("mode", "figures"),
    [
        pytest.param(RealtimeMode.STRICT, (8_500, 500, 23_500, "observed"), id="strict counts what it saw"),
        pytest.param(RealtimeMode.WARNING, (8_000, None, 24_500, "books"), id="warning counts the claims"),
        pytest.param(RealtimeMode.DISABLED, (8_000, None, 24_500, "books"), id="disabled does not look"),
    ],
)
def test_the_figures_are_those_that_the_mode_counted(
    mode: RealtimeMode, figures: tuple[int, int | None, int, str]
) -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(8_000)])
    fleet.observe("GPU-a", observation(9_000, process(8_500, "ns/other"), process(500)))
    card = explained(fleet, ask(8_000), Rules(mode=mode)).nodes[0].gpus[0]

    assert (card.held_mib, card.unmanaged_mib, card.free_mib, card.basis) == figures


def test_a_share_is_a_number_on_each_card() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b", 16_100)))
    cards = explained(fleet, ask(ShareSize(1, 4))).nodes[0].gpus

    assert [card.ask_mib for card in cards] == [8_125, 4_000]


def test_alternatives_carry_scores_and_the_lead_of_the_best() -> None:
    fleet = fleet_of(*(node(f"n{i}", gpu(f"GPU-{i}", 20_000 + 10 * i)) for i in range(7)))
    explanation = explained(fleet, ask(8_000), Rules(mode=RealtimeMode.DISABLED))

    bare = [Alternative(each.node, each.score) for each in explanation.alternatives]
    assert bare == [Alternative(f"n{i}", -(11_900 + 10 * i)) for i in range(5)]
    assert explanation.lead == 10
    assert explanation.nodes[6].score == -11_960


def test_without_a_second_node_there_is_no_lead() -> None:
    assert explained(fleet_of(node("n1", gpu())), ask(8_000)).lead is None


def test_as_many_nodes_are_listed_as_wanted() -> None:
    fleet = fleet_of(*(node(f"n{i:02}", gpu(f"GPU-{i}", 5_000 + i)) for i in range(30)))
    listed = {most: explained(fleet, ask(8_000), most_nodes=most).nodes for most in (0, 3, 20, None)}

    assert [len(nodes) for nodes in listed.values()] == [0, 3, 20, 30]
    assert [line.node for line in listed[3]] == ["n29", "n28", "n27"]


def test_a_node_with_a_problem_tells_it() -> None:
    problem = NodeProblem(ProblemKind.FROZEN, "ns/p is on GPU-b by the pod and on GPU-a by the ledger")
    line = explained(fleet_of(node("n1", gpu(), problem=problem)), ask()).nodes[0]

    assert (line.reason, line.detail) == (Reason.FROZEN_NODE, problem.detail)


def test_an_explanation_carries_the_versions_of_what_was_decided() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(10), claim(10, "ns/b")])
    explanation = explained(fleet, ask(), Rules(policy=PolicyName.SPREAD, mode=RealtimeMode.WARNING))

    assert (explanation.ledger_version, explanation.generation) == (2, fleet.generation)
    assert (explanation.mode, explanation.policy) == (RealtimeMode.WARNING, PolicyName.SPREAD)


def test_a_decision_cannot_be_explained_once_the_fleet_has_changed() -> None:
    fleet = fleet_of(node("n1", gpu()))
    decision = decide(fleet, ask(), Rules(), now=100.0)
    fleet.adopt([claim(10)])

    about = f"the decision on ns/new is about generation {decision.generation} of the fleet"
    with pytest.raises(InvariantError, match=about):
        explain_decision(fleet, decision, Rules())


def test_counterfactuals_are_left_out_where_nobody_asks_why() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(30_000)])
    decision = decide(fleet, ask(8_000), Rules(), now=100.0)

    assert explain_decision(fleet, decision, Rules(), why=False).counterfactuals == []
    assert explain_decision(fleet, decision, Rules()).counterfactuals != []


def test_a_nomination_is_told() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(24_000, state=ClaimState.RELEASING)])

    assert explained(fleet, ask(16_000)).nominated == "n1"


@given(fleets(), wishes(), ANY_RULES)
def test_every_explanation_adds_up_and_agrees_with_its_decision(
    fleet: Fleet, wish: Ask, rules: Rules
) -> None:
    decision = decide(fleet, wish, rules, now=NOW)
    explanation = explain_decision(fleet, decision, rules, most_nodes=None, why=False)

    assert "\n" not in explanation.message
    assert (explanation.reason is None) == (decision.placement is not None)
    assert {line.node for line in explanation.nodes} == {each.name for each in fleet.nodes}
    for line in explanation.nodes:
        assert line.fits == (line.reason is None) == (line.score is not None)
        for card in line.gpus:
            left = card.usable_mib - card.margin_mib - card.held_mib - (card.unmanaged_mib or 0)
            row = fleet.columns.row_of[card.uuid]
            assert left == card.free_mib == decision.free[row]
            assert card.short_mib == max(0, card.ask_mib - card.free_mib)
            assert (card.unmanaged_mib is None) == (card.basis == "books")
            assert (card.reason is not Reason.INSUFFICIENT_VRAM) or card.short_mib > 0


@given(fleets(), wishes(), ANY_RULES)
def test_an_explanation_survives_json(fleet: Fleet, wish: Ask, rules: Rules) -> None:
    explanation = explain_decision(fleet, decide(fleet, wish, rules, now=NOW), rules)

    assert msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation) == explanation


@given(fleets(), wishes(), ANY_RULES)
def test_a_placed_pod_leads_the_list_with_its_node(fleet: Fleet, wish: Ask, rules: Rules) -> None:
    decision = decide(fleet, wish, rules, now=NOW)
    if decision.placement is not None:
        explanation = explain_decision(fleet, decision, rules)

        assert explanation.nodes[0].node == explanation.alternatives[0].node == decision.placement.node
        assert explanation.lead is None or explanation.lead >= 0
