"""What pods usually ask for."""

from hypothesis import given
from hypothesis import strategies as st

from vramline.model.ask import MibSize, WholeSize
from vramline.model.mix import AskClass, Mix
from vramline.units import Mib

SMALL, LARGE, RARE = (AskClass(gpus=1, size=MibSize(Mib(mib))) for mib in (1_000, 8_000, 30_000))


def test_the_most_frequent_classes_are_typical_and_what_is_rare_is_not() -> None:
    mix = Mix({SMALL: 70, LARGE: 26, RARE: 4})

    assert mix.typical == ((SMALL, 70), (LARGE, 26))


def test_a_mix_that_was_given_learns_nothing() -> None:
    mix = Mix({SMALL: 40})
    mix.see(LARGE)

    assert mix.typical == ((SMALL, 40),)


def test_nothing_is_known_before_enough_was_seen() -> None:
    mix = Mix()
    for _ in range(31):
        mix.see(SMALL)
    assert not mix.is_known

    mix.see(SMALL)
    assert mix.is_known


def test_what_was_asked_long_ago_is_forgotten() -> None:
    mix = Mix()
    for _ in range(10_000):
        mix.see(SMALL)
    for _ in range(10_048):
        mix.see(LARGE)

    assert list(mix.counts) == [LARGE]
    assert mix.typical[0][0] == LARGE


def test_the_version_stands_while_the_parts_of_the_classes_do() -> None:
    mix = Mix()
    for _ in range(640):
        mix.see(SMALL)
        mix.see(LARGE)
    before = mix.version
    for _ in range(640):
        mix.see(LARGE)
        mix.see(SMALL)
    assert mix.version == before

    for _ in range(2_000):
        mix.see(RARE)
    assert mix.version > before
    assert RARE in dict(mix.typical)


@given(st.lists(st.lists(st.integers(1, 4), max_size=90), max_size=8))
def test_asks_counted_together_are_counted_as_if_one_by_one(told: list[list[int]]) -> None:
    one_by_one, together = Mix(), Mix()
    for numbers in told:
        asked = [AskClass(gpus=1, size=MibSize(Mib(1_000 * each))) for each in numbers]
        for each in asked:
            one_by_one.see(each)
        together.see_all(asked)

    assert vars(together) == vars(one_by_one)


def test_what_is_counted_together_may_be_more_than_is_remembered() -> None:
    one_by_one, together = Mix(), Mix()
    asked = [AskClass(gpus=number // 4_000) for number in range(25_000)]
    for each in asked:
        one_by_one.see(each)
    together.see_all(asked)

    assert vars(together) == vars(one_by_one)
    assert AskClass(gpus=0) not in together.counts


def test_asks_with_endless_lists_of_models_are_not_remembered() -> None:
    mix = Mix()
    for number in range(100):
        mix.see(AskClass(gpus=1, size=WholeSize(), use_models=("h100", f"{number}" * 1_000)))
        mix.see(AskClass(gpus=1, size=WholeSize(), use_models=("h100",)))

    assert list(mix.counts.values()) == [100]
