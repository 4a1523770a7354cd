"""The engine, rule by rule: what fits, what is refused and with which word, which node and card win."""

import numpy as np
import pytest

from builders import ask, claim, fleet_of, gpu, node, observation, process
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.errors import InvariantError
from vramline.model.ask import (
    Ask,
    Constraints,
    PolicyName,
    RealtimeMode,
    ShareSize,
    Size,
    UnsizedSize,
    WholeSize,
)
from vramline.model.claim import ClaimState
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.gpu import Health
from vramline.model.reason import CODE_OF, FITS, REASON_OF, Reason, WarningCode
from vramline.model.rules import Rules
from vramline.units import Mib

NOW = 100.0


def run(fleet: Fleet, wish: Ask, **rules: object) -> Decision:
    return decide(fleet, wish, Rules(**rules), now=NOW)  # type: ignore[arg-type]


def where(decision: Decision) -> tuple[str, list[str]] | None:
    placement = decision.placement
    return None if placement is None else (placement.node, [share.uuid for share in placement.gpus])


def reason(fleet: Fleet, decision: Decision, name: str = "n1") -> Reason | None:
    number = fleet.node_number(name)
    assert number is not None
    return REASON_OF.get(int(decision.node_codes[number]))


def card_reason(fleet: Fleet, decision: Decision, uuid: str = "GPU-a") -> Reason | None:
    return REASON_OF.get(int(decision.row_codes[fleet.columns.row_of[uuid]]))


@pytest.mark.parametrize(
    ("size", "mib"),
    [
        pytest.param(ShareSize(1, 4), 8_125, id="a quarter of what the empty card can promise"),
        pytest.param(ShareSize(1, 3), 10_833, id="a third, rounded down"),
        pytest.param(WholeSize(), 32_500, id="a whole card is all of it"),
        pytest.param(UnsizedSize(), 325, id="an unsized ask on a time-sliced card is one slot's share"),
    ],
)
def test_what_a_size_means_on_a_card(size: Size, mib: int) -> None:
    decision = run(fleet_of(node("n1", gpu(slots=100))), ask(size))

    assert decision.placement is not None
    assert decision.placement.gpus[0].mib == mib


def test_an_unsized_ask_may_be_set_to_mean_the_whole_time_sliced_card() -> None:
    decision = run(fleet_of(node("n1", gpu(slots=100))), ask(UnsizedSize()), unsized_is_whole=True)

    assert decision.placement is not None
    assert decision.placement.gpus[0].mib == 32_500


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 10, 64])
def test_n_pods_of_one_nth_fit_on_one_card_and_one_more_does_not(parts: int) -> None:
    fleet = fleet_of(node("n1", gpu()))
    for number in range(parts):
        fleet.reserve(reservation_of(run(fleet, ask(ShareSize(1, parts), pod=f"ns/{number}"))))

    assert run(fleet, ask(ShareSize(1, parts), pod="ns/one-too-many")).placement is None


@pytest.mark.parametrize(
    ("card", "wish", "expected"),
    [
        pytest.param(gpu(total=8_000), ask(8_000), Reason.GPU_TOO_SMALL, id="larger than the empty card"),
        pytest.param(gpu(total=90), ask(ShareSize(1, 2)), Reason.GPU_TOO_SMALL, id="a card below the margin"),
        pytest.param(gpu(health=Health.SUSPECT), ask(), Reason.UNHEALTHY_GPU, id="a suspect card"),
        pytest.param(gpu(cordoned=True), ask(), Reason.CORDONED_GPU, id="a cordoned card"),
        pytest.param(gpu(mig=True), ask(), Reason.MIG_PARTITIONED, id="a card partitioned by MIG"),
        pytest.param(
            gpu(model="NVIDIA A10"), ask(constraints=Constraints(use_models=("h100",))), Reason.WRONG_MODEL,
            id="another model",
        ),
        pytest.param(
            gpu(model="NVIDIA A10"), ask(constraints=Constraints(avoid_models=("a10",))), Reason.WRONG_MODEL,
            id="a model to avoid",
        ),
        pytest.param(
            gpu(), ask(constraints=Constraints(use_uuids=("GPU-nowhere",))), Reason.WRONG_UUID,
            id="a UUID that is nowhere",
        ),
        pytest.param(
            gpu(), ask(constraints=Constraints(avoid_uuids=("GPU-a",))), Reason.WRONG_UUID,
            id="a UUID to avoid",
        ),
        pytest.param(gpu(), ask(gpus=2), Reason.NOT_ENOUGH_GPUS, id="two cards on a node with one"),
        pytest.param(gpu(cores=40), ask(cores=50), Reason.INSUFFICIENT_CORES, id="more cores than there are"),
    ],
)  # fmt: skip
def test_refusals_on_an_empty_card(card: object, wish: Ask, expected: Reason) -> None:
    fleet = fleet_of(node("n1", card))  # type: ignore[arg-type]

    decision = run(fleet, wish)

    assert (decision.placement, reason(fleet, decision)) == (None, expected)


def test_a_sick_card_that_the_pod_did_not_ask_for_is_not_the_reason() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-a", cordoned=True)), node("n2", gpu("GPU-b", health=Health.UNHEALTHY))
    )
    decision = run(fleet, ask(constraints=Constraints(use_uuids=("GPU-b",))))

    assert (reason(fleet, decision, "n1"), reason(fleet, decision, "n2")) == (
        Reason.WRONG_UUID,
        Reason.UNHEALTHY_GPU,
    )


def test_exactly_the_last_free_mib_fits_and_one_more_does_not() -> None:
    fleet = fleet_of(node("n1", gpu()))
    fleet.adopt([claim(24_500)])

    assert where(run(fleet, ask(8_000))) == ("n1", ["GPU-a"])
    assert reason(fleet, run(fleet, ask(8_001))) is Reason.INSUFFICIENT_VRAM


def test_slots_bound_the_number_of_pods_on_a_card() -> None:
    fleet = fleet_of(node("n1", gpu(slots=2)))
    fleet.adopt([claim(10, "ns/1"), claim(10, "ns/2")])

    assert reason(fleet, run(fleet, ask(10))) is Reason.NO_SLOT_LEFT


def test_a_node_without_gpus_has_no_such_gpu() -> None:
    fleet = fleet_of(node("n1"), node("n2", gpu()))
    decision = run(fleet, ask())

    assert (where(decision), reason(fleet, decision)) == (("n2", ["GPU-a"]), Reason.NO_SUCH_GPU)


def test_an_empty_fleet_places_nothing_and_breaks_nothing() -> None:
    decision = run(fleet_of(), ask())

    assert (decision.placement, len(decision.row_codes)) == (None, 0)


def test_a_node_the_caller_refused_keeps_the_callers_reason() -> None:
    fleet = fleet_of(node("n1", gpu()), node("n2", gpu("GPU-b")))
    codes = np.zeros(2, dtype=np.int8)
    codes[0] = CODE_OF[Reason.INSUFFICIENT_CPU]

    decision = decide(fleet, ask(), Rules(), now=NOW, candidates=codes)

    assert where(decision) == ("n2", ["GPU-b"])
    assert reason(fleet, decision) is Reason.INSUFFICIENT_CPU


# ── several cards ────────────────────────────────────────────────────────────────────────────────


def test_a_multi_gpu_ask_gets_different_cards_of_one_node() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b"), gpu("GPU-c")))

    assert where(run(fleet, ask(20_000, gpus=2))) == ("n2", ["GPU-b", "GPU-c"])


def test_replicas_of_one_card_are_not_several_cards() -> None:
    fleet = fleet_of(node("n1", gpu(slots=100)))

    assert reason(fleet, run(fleet, ask(100, gpus=2))) is Reason.NOT_ENOUGH_GPUS


def test_numa_binding_takes_all_cards_from_one_numa_node() -> None:
    cards = [gpu(f"GPU-{i}", numa=numa) for i, numa in enumerate((0, 1, 0, 1))]
    fleet = fleet_of(node("n1", *cards))
    fleet.adopt([claim(30_000, gpu="GPU-0")])

    bound = ask(20_000, gpus=2, constraints=Constraints(numa_bind=True))

    assert where(run(fleet, bound)) == ("n1", ["GPU-1", "GPU-3"])


def test_numa_binding_refuses_cards_whose_numa_node_nobody_knows() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b")))
    decision = run(fleet, ask(10, gpus=2, constraints=Constraints(numa_bind=True)))

    assert (decision.placement, reason(fleet, decision)) == (None, Reason.NOT_ENOUGH_GPUS)


# ── modes ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "placed", "warned"),
    [
        pytest.param(RealtimeMode.STRICT, False, [], id="strict refuses"),
        pytest.param(
            RealtimeMode.WARNING, True, [WarningCode.STRICT_WOULD_REFUSE], id="warning places and warns"
        ),
        pytest.param(RealtimeMode.DISABLED, True, [], id="disabled does not look"),
    ],
)
def test_modes_with_6144_of_8192_used_by_nobody(
    mode: RealtimeMode, placed: bool, warned: list[WarningCode]
) -> None:
    fleet = fleet_of(node("n1", gpu(total=8_192)))
    fleet.observe("GPU-a", observation(6_144, process(6_144), at=NOW))

    decision = run(fleet, ask(4_096), mode=mode)

    assert decision.placement is not None or not placed
    assert decision.placement is None or placed
    assert [warning.code for warning in decision.warnings] == warned


def test_warning_mode_prefers_a_card_that_strict_would_accept() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a", 8_192), gpu("GPU-b", 80_000)))
    for uuid, used in (("GPU-a", 6_144), ("GPU-b", 100)):
        fleet.observe(uuid, observation(used, process(used), at=NOW))

    assert where(run(fleet, ask(4_096), mode=RealtimeMode.WARNING)) == ("n1", ["GPU-b"])


def test_a_node_nobody_saw_never_ranks_above_one_that_was_seen() -> None:
    fleet = fleet_of(node("a-unseen", gpu("GPU-a", 10_000)), node("b-seen", gpu("GPU-b", 80_000)))
    fleet.observe("GPU-b", observation(0, at=NOW))

    assert where(run(fleet, ask(8_000))) == ("b-seen", ["GPU-b"])


def test_a_stale_observation_falls_back_to_the_books_and_says_so() -> None:
    fleet = fleet_of(node("n1", gpu()))
    fleet.observe("GPU-a", observation(32_000, process(32_000), at=NOW - 91.0))

    decision = run(fleet, ask(8_000))

    assert where(decision) == ("n1", ["GPU-a"])
    assert [(each.code, each.age_s) for each in decision.warnings] == [(WarningCode.PLACED_BY_BOOKS, 91.0)]


@pytest.mark.parametrize("age", [pytest.param(91.0, id="stale"), pytest.param(None, id="missing")])
def test_a_stale_or_missing_observation_refuses_where_the_setting_says_so(age: float | None) -> None:
    fleet = fleet_of(node("n1", gpu()))
    if age is not None:
        fleet.observe("GPU-a", observation(0, at=NOW - age))

    decision = run(fleet, ask(8_000), stale_refuses=True)

    assert (decision.placement, card_reason(fleet, decision)) == (None, Reason.STALE_OBSERVATION)


# ── releasing ────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_is_nominated_to_wait_for_releasing_memory_but_not_placed_on_it() -> None:
    fleet = fleet_of(node("n1", gpu()))
    fleet.adopt([claim(24_000, state=ClaimState.RELEASING)])

    decision = run(fleet, ask(16_000))

    assert (decision.placement, decision.nominated) == (None, "n1")


def test_an_idle_card_elsewhere_wins_over_waiting() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))
    fleet.adopt([claim(24_000, state=ClaimState.RELEASING)])

    decision = run(fleet, ask(16_000))

    assert (where(decision), decision.nominated) == (("n2", ["GPU-b"]), None)


def test_nobody_waits_where_releasing_memory_would_not_be_enough() -> None:
    fleet = fleet_of(node("n1", gpu()))
    fleet.adopt([claim(1_000, "ns/leaving", state=ClaimState.RELEASING), claim(24_000, "ns/staying")])

    assert run(fleet, ask(16_000)).nominated is None


# ── policies ─────────────────────────────────────────────────────────────────────────────────────


def two_half_full_nodes() -> Fleet:
    """n1: one large card with a little taken; n2: two cards, one nearly full."""
    fleet = fleet_of(node("n1", gpu("GPU-a", 80_000)), node("n2", gpu("GPU-b"), gpu("GPU-c")))
    fleet.adopt([claim(8_000, "ns/1", gpu="GPU-a"), claim(24_000, "ns/2", gpu="GPU-b")])
    return fleet


@pytest.mark.parametrize(
    ("policy", "card"),
    [
        pytest.param(PolicyName.VRAMLINE, "GPU-b", id="vramline leaves the least behind at first"),
        pytest.param(PolicyName.BESTFIT, "GPU-b", id="bestfit leaves the least on the node"),
        pytest.param(PolicyName.BINPACK, "GPU-b", id="binpack fills the fullest node"),
        pytest.param(PolicyName.SPREAD, "GPU-a", id="spread takes the emptiest node"),
    ],
)
def test_policies_choose_different_cards(policy: PolicyName, card: str) -> None:
    decision = run(two_half_full_nodes(), ask(8_000), policy=policy)

    assert decision.placement is not None
    assert decision.placement.gpus[0].uuid == card


def test_a_pods_own_policies_win_and_may_differ_for_node_and_card() -> None:
    wish = ask(8_000, node_policy=PolicyName.BINPACK, gpu_policy=PolicyName.SPREAD)

    assert where(run(two_half_full_nodes(), wish, policy=PolicyName.SPREAD)) == ("n2", ["GPU-c"])


def test_ties_go_to_the_lowest_name_then_the_lowest_uuid() -> None:
    fleet = fleet_of(node("n2", gpu("GPU-a")), node("n1", gpu("GPU-z"), gpu("GPU-y")))

    assert where(run(fleet, ask())) == ("n1", ["GPU-y"])


def busy(used: int, percent: int) -> object:
    return observation(used, process(used), at=NOW, utilization_percent=percent)


def test_mostidle_prefers_the_node_with_more_idle_cards_then_the_calmer_one() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-a"), gpu("GPU-b")),
        node("n2", gpu("GPU-c"), gpu("GPU-d")),
        node("n3", gpu("GPU-e")),
    )
    for uuid, percent in (("GPU-a", 80), ("GPU-b", 10), ("GPU-c", 20), ("GPU-d", 20), ("GPU-e", 0)):
        fleet.observe(uuid, busy(0, percent))  # type: ignore[arg-type]

    assert where(run(fleet, ask(100), policy=PolicyName.MOSTIDLE)) == ("n2", ["GPU-c"])


def test_mostidle_calls_no_card_idle_that_nobody_saw_while_pods_hold_some_of_the_node() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b"), gpu("GPU-c")))
    fleet.observe("GPU-a", busy(20_000, 90))  # type: ignore[arg-type]
    fleet.adopt([claim(1_000, gpu="GPU-b")])

    decision = run(fleet, ask(100), policy=PolicyName.MOSTIDLE)

    assert WarningCode.NO_IDLE_GPU in [warning.code for warning in decision.warnings]


def test_a_decision_that_placed_nothing_cannot_be_reserved() -> None:
    with pytest.raises(InvariantError, match="nothing to reserve"):
        reservation_of(run(fleet_of(), ask()))


def test_the_code_of_a_fitting_node_is_fits() -> None:
    fleet = fleet_of(node("n1", gpu()))

    assert run(fleet, ask()).node_codes.tolist() == [FITS]


def test_a_share_of_a_card_counts_driver_reserve_and_margin() -> None:
    decision = run(fleet_of(node("n1", gpu(total=81_559, reserved=Mib(559)))), ask(ShareSize(1, 2)))

    assert decision.placement is not None
    assert decision.placement.gpus[0].mib == 40_450
