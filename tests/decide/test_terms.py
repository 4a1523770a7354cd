"""The terms of a score: they add up to it, under every policy, and say what was true when it was made."""

import msgspec
import pytest
from hypothesis import given, settings

from builders import ask, claim, fleet_of, gpu, node, observation
from explain.worlds import ANY_RULES, wishes
from strategies import NOW, fleets
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.decide.terms import ScoreTerm
from vramline.explain.decision import explain_decision, seal_decision
from vramline.model.ask import Ask, MibSize, PolicyName
from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.mix import AskClass, Mix, class_of
from vramline.model.node import HostRoom
from vramline.model.rules import Rules
from vramline.units import Mib

HALVES = Mix({AskClass(gpus=1, size=MibSize(Mib(5_000))): 90, AskClass(gpus=1, size=MibSize(Mib(1_000))): 10})


@given(fleets(), wishes(), ANY_RULES)
@settings(max_examples=80, deadline=None)
def test_terms_add_up_to_the_score_of_the_best_and_of_those_behind(
    fleet: Fleet, wish: Ask, rules: Rules
) -> None:
    fleet.mix = Mix({class_of(wish): 40})
    explanation = explain_decision(fleet, decide(fleet, wish, rules, now=NOW), rules, why=False)

    for each in explanation.alternatives:
        assert each.terms
        assert sum(term.points for term in each.terms) == pytest.approx(each.score, rel=1e-12, abs=1e-6)
        assert all(term.points == term.value * term.weight for term in each.terms)
        assert all(abs(term.points) < 1 for term in each.terms if term.term == "rounding")


@pytest.mark.parametrize("policy", list(PolicyName))
def test_a_node_that_does_not_say_what_cpu_it_has_stays_in_its_tier(policy: PolicyName) -> None:
    rooms = {"n1": HostRoom(cpu_milli=64_000), "n2": HostRoom(), "n3": HostRoom(cpu_milli=64_000)}
    nodes = [node(name, gpu(f"GPU-{name}", 10_100), host=room) for name, room in rooms.items()]
    seen = {f"GPU-{name}": observation(0, at=NOW) for name in ("n1", "n2")}  # nobody looked at n3
    fleet = fleet_of(*nodes, observations=seen)
    fleet.hosts = HostColumns()
    for each in nodes:
        fleet.hosts.set_node(fleet.node_numbers([each.name])[0], each)
    fleet.mix = HALVES
    rules = Rules(policy=policy)
    wish = msgspec.structs.replace(ask(1_000), cpu_milli=500)

    explanation = explain_decision(fleet, decide(fleet, wish, rules, now=NOW), rules)

    tiers = {each.node: any(term.term == "tiers" for term in each.terms) for each in explanation.alternatives}
    assert tiers == {"n1": False, "n2": False, "n3": True}
    assert explanation.alternatives[-1].node == "n3"


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        pytest.param(PolicyName.VRAMLINE, {"fragments", "cpu_lost", "regret", "scarcity"}, id="vramline"),
        pytest.param(PolicyName.FGD, {"attraction"}, id="fgd"),
        pytest.param(PolicyName.BESTFIT, {"base", "memory_left"}, id="bestfit"),
        pytest.param(PolicyName.MOSTIDLE, {"too_few_idle", "idle_cards", "utilization"}, id="mostidle"),
        pytest.param(PolicyName.SPREAD, {"fill"}, id="spread"),
    ],
)
def test_every_policy_names_what_it_looks_at(policy: PolicyName, names: set[str]) -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", 10_100)), node("n2", gpu("GPU-b", 10_100)))
    fleet.mix = HALVES
    rules = Rules(policy=policy)
    best = explain_decision(fleet, decide(fleet, ask(1_000), rules, now=NOW), rules).alternatives[0]

    assert {term.term for term in best.terms} - {"rounding", "tiers"} == names


def test_the_runner_up_shows_what_it_would_have_spoilt() -> None:
    """Halves are usual: a tenth beside a half leaves no room for the other half."""
    fleet = fleet_of(node("n1", gpu("GPU-a", 10_100)), node("n2", gpu("GPU-b", 10_100)))
    fleet.adopt([claim(5_000, "ns/half", gpu="GPU-a"), claim(1_000, "ns/tenth", gpu="GPU-b")])
    fleet.mix = HALVES
    decision = decide(fleet, ask(1_000), Rules(), now=NOW)
    best, second = explain_decision(fleet, decision, Rules()).alternatives

    assert (best.node, second.node) == ("n2", "n1")
    assert value_of(second.terms, "fragments") > value_of(best.terms, "fragments")


def test_what_was_sealed_is_told_as_it_was_although_the_fleet_has_gone_on() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", 10_100)), node("n2", gpu("GPU-b", 10_100)))
    fleet.mix = HALVES
    decision = decide(fleet, ask(1_000), Rules(), now=NOW)
    then = explain_decision(fleet, decision, Rules(), why=False)
    sealed = seal_decision(fleet, decision, Rules(), why=False)

    fleet.reserve(reservation_of(decision))
    fleet.adopt([claim(5_000, "ns/half", gpu="GPU-a")])
    decide(fleet, ask(1_000, pod="ns/next"), Rules(), now=NOW)
    fleet.remove_node("n2")

    assert sealed.explanation == then
    assert sealed.brief.message == then.message


def test_too_little_known_of_what_is_asked_for_the_term_is_what_stays_free() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", 10_100)))
    best = explain_decision(fleet, decide(fleet, ask(1_000), Rules(), now=NOW), Rules()).alternatives[0]

    assert value_of(best.terms, "left_over") == 9_000


def value_of(terms: list[ScoreTerm], name: str) -> float:
    return next(term.value for term in terms if term.term == name)
