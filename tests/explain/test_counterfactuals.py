"""What would change the answer: the sentences whole, and every one of them true when applied."""

from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import ask, claim, fleet_of, gpu, node, observation, process
from explain.worlds import ANY_RULES, wishes
from strategies import NOW, fleets
from vramline.decide.engine import decide
from vramline.explain.changes import FewerGpus, LeavingPod, Release, SmallerAsk, SwitchMode
from vramline.explain.counterfactuals import Counterfactual, apply_to, find_counterfactuals
from vramline.model.ask import Ask, RealtimeMode, ShareSize
from vramline.model.claim import ClaimState
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.model.rules import Rules

STRANGER = observation(6_144, process(6_144))
ALL = 99


def found(
    fleet: Fleet, wish: Ask, rules: Rules | None = None, *, refused: Iterable[str] = (), most: int = ALL
) -> list[Counterfactual]:
    rules = rules or Rules()
    candidates = np.full(fleet.node_count, FITS, dtype=np.int8)
    for name in refused:
        candidates[fleet.node_number(name)] = CODE_OF[Reason.NODE_CORDONED]
    decision = decide(fleet, wish, rules, now=100.0, candidates=candidates)
    return find_counterfactuals(fleet, decision, rules, candidates=candidates, most=most)


@pytest.mark.parametrize(
    ("fleet", "wish", "sentences"),
    [
        pytest.param(
            fleet_of(node("n1", gpu()), claims=[claim(24_000)]),
            ask(16_000),
            ["fits on n1 if the ask is ≤ 8,500 MiB", "fits on n1 if ns/other ends"],
            id="a smaller ask, or the end of a neighbour",
        ),
        pytest.param(
            fleet_of(node("n1", gpu()), claims=[claim(24_000, "ns/old", state=ClaimState.RELEASING)]),
            ask(16_000),
            ["fits on n1 when ns/old has released 24,000 MiB", "fits on n1 if the ask is ≤ 8,500 MiB"],
            id="a neighbour that is ending",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu()),
                claims=[
                    claim(mib, f"ns/{mib}", state=ClaimState.RELEASING) for mib in (1_000, 20_000, 9_000)
                ],
            ),
            ask(10_000),
            ["fits on n1 when ns/9000 has released 9,000 MiB", "fits on n1 if the ask is ≤ 2,500 MiB"],
            id="of several that are ending, the smallest that is enough",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu()),
                claims=[claim(16_000, pod, state=ClaimState.RELEASING) for pod in ("ns/a", "ns/b")],
            ),
            ask(30_000),
            ["fits on n1 when ns/a and ns/b have released 32,000 MiB", "fits on n1 if the ask is ≤ 500 MiB"],
            id="several that are ending, where one is not enough",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(total=8_192)), observations={"GPU-a": STRANGER}),
            ask(4_096),
            ["fits on n1 with realtime warning", "fits on n1 if the ask is ≤ 1,948 MiB"],
            id="a stranger's process",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c", 8_000))),
            ask(16_000, gpus=3),
            ["fits on n1 if the ask is ≤ 7,900 MiB on each GPU", "fits on n1 with 2 GPUs instead of 3"],
            id="several cards",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-a", numa=0), gpu("GPU-b", numa=1))),
            ask(8_000, gpus=2, numa_bind=True),
            ["fits on n1 with 1 GPU instead of 2"],
            id="cards of different NUMA nodes",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-a", cordoned=True))),
            ask(8_000),
            ["fits on n1 if GPU-a is uncordoned"],
            id="a cordoned card",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(slots=1)), claims=[claim(10)]),
            ask(8_000),
            ["fits on n1 if ns/other ends"],
            id="a card whose one slot is taken",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(slots=1)), claims=[claim(10)]),
            ask(65_000),
            [],
            id="a card that is too small and taken: no single change helps",
        ),
        pytest.param(
            fleet_of(node("n1", gpu()), claims=[claim(20_000)]),
            ask(ShareSize(1, 2)),
            ["fits on n1 if the ask is ≤ 12,500 MiB", "fits on n1 if ns/other ends"],
            id="a share of a card",
        ),
        pytest.param(fleet_of(node("n1", gpu())), ask(use_uuids=("GPU-x",)), [], id="nothing would help"),
        pytest.param(fleet_of(), ask(), [], id="there is nothing at all"),
        pytest.param(fleet_of(node("n1", gpu())), ask(), [], id="a placed pod needs no change"),
    ],
)
def test_what_would_change_the_answer(fleet: Fleet, wish: Ask, sentences: list[str]) -> None:
    assert [each.sentence for each in found(fleet, wish)] == sentences


def test_a_silent_card_that_strict_refuses_fits_with_warning() -> None:
    fleet = fleet_of(node("n1", gpu()))

    assert [each.change for each in found(fleet, ask(), Rules(stale_refuses=True))] == [
        SwitchMode(RealtimeMode.WARNING)
    ]


@pytest.mark.parametrize("mode", [RealtimeMode.WARNING, RealtimeMode.DISABLED])
def test_only_strict_is_asked_to_relax(mode: RealtimeMode) -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(32_000)])

    assert "SwitchMode" not in [each.kind for each in found(fleet, ask(), Rules(mode=mode))]


def test_nothing_is_suggested_for_a_node_whose_host_was_refused() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", 8_000)), node("n2", gpu("GPU-b", 9_000)))
    seen = [each.node for each in found(fleet, ask(9_500), refused=["n2"])]

    assert seen == ["n1"]


def test_at_most_so_many_are_told() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(24_000)])

    assert len(found(fleet, ask(16_000), most=1)) == 1


def test_a_counterfactual_is_a_sentence_for_people_and_fields_for_programs() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(24_000, "ns/old", state=ClaimState.RELEASING)])
    release, smaller = found(fleet, ask(16_000))

    assert release.change == Release((LeavingPod("ns/old", "uid-ns/old", 24_000),))
    assert (smaller.kind, smaller.change) == ("SmallerAsk", SmallerAsk(8_500))
    assert msgspec.to_builtins(smaller) == {
        "sentence": "fits on n1 if the ask is ≤ 8,500 MiB",
        "node": "n1",
        "change": {"kind": "SmallerAsk", "ask_mib": 8_500},
    }


def test_the_announced_release_comes_true_when_the_card_shows_it() -> None:
    fleet = fleet_of(node("n1", gpu()), claims=[claim(24_000, "ns/old", state=ClaimState.RELEASING)])
    fleet.observe("GPU-a", observation(24_000, process(24_000, "ns/old"), at=99.0))
    assert next(each.kind for each in found(fleet, ask(16_000))) == "Release"
    fleet.pod_ended("uid-ns/old", at=100.0)
    fleet.observe("GPU-a", observation(0, at=101.0))
    fleet.settle(now=101.0, grace_s=60.0, max_age_s=90.0)

    assert decide(fleet, ask(16_000), Rules(), now=101.0).placement is not None


@given(fleets(), wishes(), ANY_RULES, st.data())
def test_every_counterfactual_is_true_when_applied(
    fleet: Fleet, wish: Ask, rules: Rules, data: st.DataObject
) -> None:
    candidates = np.array(
        [data.draw(st.sampled_from([FITS, FITS, FITS, CODE_OF[Reason.NODE_CORDONED]])) for _ in fleet.nodes],
        dtype=np.int8,
    )
    decision = decide(fleet, wish, rules, now=NOW, candidates=candidates)
    generation = fleet.generation
    for each in find_counterfactuals(fleet, decision, rules, candidates=candidates, most=ALL):
        assert fits_when_applied(each, fleet, wish, rules, candidates)
        number = fleet.node_number(each.node)
        assert number is not None
        assert candidates[number] == FITS
        assert decision.node_codes[number] != FITS
        if isinstance(each.change, SmallerAsk):
            more = msgspec.structs.replace(each, change=SmallerAsk(each.change.ask_mib + 1))
            assert not fits_when_applied(more, fleet, wish, rules, candidates)
        if isinstance(each.change, FewerGpus):
            more = msgspec.structs.replace(each, change=FewerGpus(each.change.gpus + 1))
            assert not fits_when_applied(more, fleet, wish, rules, candidates)

    assert fleet.generation == generation


def fits_when_applied(
    counterfactual: Counterfactual,
    fleet: Fleet,
    wish: Ask,
    rules: Rules,
    candidates: np.ndarray[tuple[int], np.dtype[np.int8]],
) -> bool:
    world = apply_to(counterfactual, fleet, wish, rules)
    hosts = candidates if world.fleet is fleet else None
    decision = decide(world.fleet, world.ask, world.rules, now=NOW, candidates=hosts)
    return bool(decision.node_codes[world.fleet.node_number(counterfactual.node)] == FITS)
