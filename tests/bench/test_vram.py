"""The VRAM benchmark: our rule never over-commits, others' do, and who counts again finds every case."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.bench.vram import VramRun, measure_vram
from vramline.bench.vram_check import LogEntry, find_over_commits
from vramline.bench.vram_rules import RuleName
from vramline.bench.vram_world import Stranger, VramCard, VramPod, VramShape, VramWorld, make_world

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


class OneAfterAnother:
    """Gives every pod the same card, looking at nothing."""

    def __init__(self, card: str) -> None:
        self._card = card

    def place(self, pod: VramPod, now: float) -> tuple[str, ...] | str:
        del pod, now
        return (self._card,)

    def started(self, pod: VramPod, now: float) -> None:
        """Never mind."""

    def deleted(self, pod: VramPod) -> None:
        """Never mind."""

    def ended(self, pod: VramPod, now: float) -> None:
        """Never mind."""

    def changed(self, card: str, now: float) -> None:
        """Never mind."""


def test_a_death_is_the_rules_only_where_a_promise_was_made_without_room() -> None:
    """The first pod meets a stranger that came after the promise, the last a pod that fills the card."""
    card = VramCard("GPU-a", "n1", "any", 100, 0, 1)
    spans = {"start_s": 2.0, "grace_s": 1.0, "lag_s": 1.0}
    unlucky, filling, crowded, end = (
        VramPod(name=name, at=at, gpus=1, ask=mib, use=mib, life_s=life, **spans)
        for name, at, mib, life in (
            ("unlucky", 0.0, 60, 10.0),
            ("filling", 20.0, 80, 50.0),
            ("crowded", 30.0, 60, 10.0),
            ("end", 100.0, 1, 10.0),
        )
    )
    stranger = Stranger("stranger-0", 1.0, "GPU-a", 50, 5.0)
    world = VramWorld((card,), (unlucky, filling, crowded, end), (stranger,))

    run = VramRun(world, lambda _look: OneAfterAnother("GPU-a"))
    run.play(lambda _done: None)
    figures = run.figures(RuleName.BOOKS)

    assert (figures.over_commits, figures.died, figures.died_by_rule) == (1, 2, 1)


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
