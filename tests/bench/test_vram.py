"""The VRAM benchmark: our rule never over-commits, others' do, and who counts again finds every case."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.bench.vram import measure_vram
from vramline.bench.vram_check import LogEntry, find_over_commits
from vramline.bench.vram_rules import RuleName
from vramline.bench.vram_world import VramShape, make_world

USABLE = {"a": 100, "b": 60}


def say_nothing(_done: int, _total: int) -> None:
    """Nobody watches."""


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1_000))
def test_our_rule_never_promises_what_a_card_does_not_have(seed: int) -> None:
    shape = VramShape(nodes=5, gpus=2, pods=250, seed=seed)

    ours = measure_vram(shape, rules=(RuleName.VRAMLINE,), progress=say_nothing).rules[0]

    assert (ours.over_commits, ours.died_by_rule) == (0, 0)
    assert ours.placed + sum(ours.rejected.values()) == 250


def test_every_other_rule_lets_pods_die_that_ours_does_not() -> None:
    done = {
        each.rule: each
        for each in measure_vram(VramShape(nodes=5, gpus=4, pods=400), progress=say_nothing).rules
    }

    ours = done.pop(RuleName.VRAMLINE)

    assert len(done) == 3
    assert all(each.over_commits > 0 and each.died > ours.died for each in done.values())


def test_the_same_seed_gives_the_same_world_and_figures() -> None:
    shape = VramShape(nodes=2, gpus=2, pods=80, seed=9)

    assert make_world(shape) == make_world(shape)
    assert measure_vram(shape, progress=say_nothing) == measure_vram(shape, progress=say_nothing)


@st.composite
def histories(draw: st.DrawFn) -> list[LogEntry]:
    """Pods and strangers that come and go on two cards, with or without room for them."""
    entries: list[tuple[float, LogEntry]] = []
    for number in range(draw(st.integers(0, 8))):
        card, mib = draw(st.sampled_from(sorted(USABLE))), draw(st.integers(1, 80))
        at, stay = draw(st.integers(0, 50)), draw(st.integers(1, 30))
        came, went = draw(st.sampled_from((("promised", "left"), ("came", "went"))))
        who = f"{came}-{number}"
        entries += [
            (at, LogEntry(at, came, who, card, mib)),
            (at + stay, LogEntry(at + stay, went, who, card)),
        ]
        if came == "promised" and draw(st.booleans()):
            took = at + stay / 2
            entries.append((took, LogEntry(took, "took", who, card, draw(st.integers(1, 120)))))
    return [entry for _, entry in sorted(entries, key=lambda each: each[0])]


@given(histories())
def test_the_recount_finds_exactly_the_promises_without_room(log: list[LogEntry]) -> None:
    found = {(each.who, each.short) for each in find_over_commits(USABLE, log)}

    assert found == {
        (entry.who, short)
        for place, entry in enumerate(log)
        if entry.what == "promised" and (short := entry.mib - left_before(log[:place], entry.card)) > 0
    }


def left_before(log: list[LogEntry], card: str) -> int:
    """What was left on a card, from the whole history anew."""
    here = [entry for entry in log if entry.card == card]
    gone = {entry.who for entry in here if entry.what in ("left", "went")}
    there = sorted((entry for entry in here if entry.who not in gone), key=lambda entry: entry.who)
    by_pod = itertools.groupby(there, key=lambda entry: entry.who)
    return USABLE[card] - sum(max(entry.mib for entry in entries) for _, entries in by_pod)


def test_a_pod_that_is_promised_a_card_twice_holds_both() -> None:
    log = [LogEntry(0, "promised", "pod", "b", 40), LogEntry(1, "promised", "pod", "b", 10)]

    found = find_over_commits(USABLE, [*log, LogEntry(2, "promised", "next", "b", 11)])

    assert [(each.who, each.short) for each in found] == [("next", 1)]
