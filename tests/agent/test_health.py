"""The state machine of a card's health: drawn in the module, checked here for every history."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.agent.health import Condition, HealthRules, Sign, Signs, probation_s, step, worst
from vramline.model.gpu import Health

RULES = HealthRules()
CALM, DOUBT, FAULT = Signs(), Signs(Sign.DOUBT, "silent"), Signs(Sign.FAULT, "Xid 79")
H, S, U, P = Health.HEALTHY, Health.SUSPECT, Health.UNHEALTHY, Health.PROBATION
ALLOWED = {(H, S), (H, U), (S, H), (S, U), (U, P), (P, U), (P, H)}


def run(*looks: tuple[float, Signs], start: Condition | None = None) -> list[Condition]:
    """The condition after each look, given as time and signs."""
    states = itertools.accumulate(
        looks, lambda condition, look: step(condition, look[1], look[0], RULES), initial=start or Condition()
    )
    return list(states)[1:]


def every_second(signs: Signs, first: int, last: int) -> list[tuple[float, Signs]]:
    return [(float(second), signs) for second in range(first, last + 1)]


def healths(conditions: list[Condition]) -> list[Health]:
    return [condition.health for condition in conditions]


def test_one_bad_read_makes_a_card_suspect_and_ten_calm_seconds_heal_it() -> None:
    states = run((0.0, DOUBT), *every_second(CALM, 1, 11))

    assert healths(states) == [S] * 11 + [H]
    assert (states[0].why, states[-1].why) == ("silent", "")


def test_doubt_that_lasts_makes_a_card_unhealthy() -> None:
    assert healths(run(*every_second(DOUBT, 0, 10)))[-2:] == [S, U]


def test_a_fault_makes_a_card_unhealthy_at_once_and_it_heals_through_probation() -> None:
    states = healths(run((0.0, FAULT), *every_second(CALM, 1, 91)))

    assert states[0] is U
    assert (states[30], states[31], states[90], states[91]) == (U, P, P, H)


@pytest.mark.parametrize("signs", [DOUBT, FAULT], ids=["doubt", "fault"])
def test_on_probation_anything_bad_is_a_fall_and_the_next_probation_is_longer(signs: Signs) -> None:
    on_probation = run((0.0, FAULT), *every_second(CALM, 1, 31))[-1]

    fallen = run((32.0, signs), start=on_probation)[-1]

    assert (on_probation.health, fallen.health) == (P, U)
    assert probation_s(fallen, RULES) == 2 * probation_s(on_probation, RULES)


def test_a_fault_that_stays_keeps_a_card_unhealthy() -> None:
    assert set(healths(run(*every_second(FAULT, 0, 500)))) == {U}


def test_doubt_alone_makes_a_flapping_card_unhealthy() -> None:
    flaps = [
        look
        for fall in range(4)
        for look in [(fall * 20.0, DOUBT), *every_second(CALM, fall * 20 + 1, fall * 20 + 19)]
    ]

    assert [healths(run(*flaps))[fall * 20] for fall in range(4)] == [S, S, S, U]


def test_falls_are_forgotten_after_an_hour() -> None:
    before = Condition(health=H, falls=(0.0, 1.0, 2.0))

    assert step(before, DOUBT, 3605.0, RULES).falls == (3605.0,)


def test_the_worst_sign_counts_and_no_sign_is_calm() -> None:
    assert worst([DOUBT, FAULT, CALM]) == FAULT
    assert worst([]) == CALM


SIGNS = st.sampled_from([CALM, CALM, CALM, DOUBT, FAULT])
GAPS = st.sampled_from([0.5, 1.0, 3.0, 12.0, 40.0, 90.0])
HISTORIES = st.lists(st.tuples(GAPS, SIGNS), max_size=60)


def play(history: list[tuple[float, Signs]]) -> tuple[list[Condition], float]:
    times = list(itertools.accumulate(gap for gap, _ in history))
    looks = list(zip(times, (signs for _, signs in history), strict=True))
    return run(*looks), times[-1] if times else 0.0


@given(HISTORIES)
def test_no_way_that_is_not_drawn_is_ever_taken(history: list[tuple[float, Signs]]) -> None:
    states = [H, *healths(play(history)[0])]

    taken = {(a, b) for a, b in itertools.pairwise(states) if a is not b}
    assert taken <= ALLOWED


@given(HISTORIES)
def test_a_fault_is_never_overlooked(history: list[tuple[float, Signs]]) -> None:
    states, _ = play(history)

    assert all(
        state.health is U
        for state, (_, signs) in zip(states, history, strict=True)
        if signs.sign is Sign.FAULT
    )


@given(HISTORIES)
def test_nothing_bad_leaves_a_card_healthy(history: list[tuple[float, Signs]]) -> None:
    states, _ = play(history)

    assert all(state.health is not H for state, (_, signs) in zip(states, history, strict=True) if signs.sign)


@given(HISTORIES)
def test_whatever_happened_a_card_that_stays_calm_heals(history: list[tuple[float, Signs]]) -> None:
    states, end = play(history)
    longest = RULES.cooldown_s + RULES.longest_probation_s + RULES.calm_s

    looks = [(end + second, CALM) for second in range(1, int(longest) + 10)]
    assert run(*looks, start=states[-1] if states else None)[-1].health is H


@given(st.integers(2, 59), st.sampled_from([DOUBT, FAULT]), st.integers(200, 900))
def test_a_card_that_flaps_is_not_healthy_between_two_faults(period: int, signs: Signs, length: int) -> None:
    looks = [(float(second), signs if second % period == 0 else CALM) for second in range(length)]

    settled = [state for state in run(*looks) if len(state.falls) >= RULES.flaps]
    assert all(state.health is not H for state in settled)


@given(HISTORIES)
def test_what_is_remembered_stays_small(history: list[tuple[float, Signs]]) -> None:
    states, _ = play(history)

    assert all(len(state.falls) <= 16 for state in states)
