import random

import pytest

from vramline.kube.client import KubeClient
from vramline.kube.events import (
    Journal,
    News,
    Notice,
    Recorder,
    Regarding,
    Repeat,
    Reporter,
    Severity,
    TokenBucket,
    shorten,
)
from vramline.kube.objects import ObjectKey
from vramline.kube.target import Cluster, Target, User

KEY = ObjectKey("llm-0.1", "team")


def notice(note: str = "7,500 MiB short", *, name: str = "llm-0", reason: str = "InsufficientVram") -> Notice:
    about = Regarding(kind="Pod", name=name, namespace="team", uid="u1")
    return Notice(regarding=about, reason=reason, action="Scheduling", note=note, severity=Severity.WARNING)


def told_at(seconds: float) -> Journal:
    """A journal in which the notice was told at this time."""
    journal = Journal(repeat_s=60.0, forget_s=600.0, limit=3)
    journal.keep(notice(), KEY, seconds)
    return journal


def test_what_was_not_told_is_news() -> None:
    assert told_at(0).enter(notice(reason="NoSlotLeft"), 1) == News(notice(reason="NoSlotLeft"))


def test_the_same_again_is_only_counted() -> None:
    journal = told_at(0)

    assert [journal.enter(notice(), second) for second in (1, 2, 59)] == [None, None, None]


def test_after_a_minute_the_count_is_written() -> None:
    journal = told_at(0)
    for second in (1, 2):
        journal.enter(notice(), second)

    assert journal.enter(notice(), 60) == Repeat(notice(), KEY, 4)
    assert journal.enter(notice(), 61) is None


def test_other_figures_are_news_only_once_a_minute() -> None:
    journal = told_at(0)

    assert journal.enter(notice("7,400 MiB short"), 30) is None
    assert journal.enter(notice("7,300 MiB short"), 60) == News(notice("7,300 MiB short"))


def test_after_a_long_silence_it_is_news_again() -> None:
    assert told_at(0).enter(notice(), 600) == News(notice())


def test_what_could_not_be_written_is_news_again() -> None:
    journal = told_at(0)
    journal.forget(notice())

    assert journal.enter(notice(), 1) == News(notice())


def test_the_journal_does_not_grow_without_end() -> None:
    journal = told_at(0)
    for number in range(3):
        journal.keep(notice(name=f"pod-{number}"), KEY, 1)

    assert journal.enter(notice(), 2) == News(notice())
    assert journal.enter(notice(name="pod-0"), 2) is None


def test_a_burst_is_let_through_and_the_rest_waits_its_turn() -> None:
    bucket = TokenBucket(per_s=2.0, burst=3)

    assert [bucket.reserve(100.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert bucket.reserve(102.0) == 0.0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(per_s=2.0, burst=1)
    bucket.reserve(0.0)

    assert [bucket.reserve(1_000.0) for _ in range(2)] == [0.0, 0.5]


def test_what_does_not_fit_into_the_queue_is_counted_and_may_be_told_later() -> None:
    client = KubeClient(
        Target(cluster=Cluster(server="http://127.0.0.1:1"), user=User()), rng=random.Random()
    )
    recorder = Recorder(client, Reporter("vramline.io/scheduler", "r1"), queue_limit=2, clock=lambda: 0.0)
    for number in range(5):
        recorder.record(notice(name=f"pod-{number}"))
    recorder.record(notice(name="pod-4"))
    recorder.record(notice(name="pod-0"))

    assert recorder.dropped == 4  # pods 2, 3, 4 and 4 again; pod 0 was only counted


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("12345678", 8, "12345678"),
        ("123456789", 8, "12345…"),
        ("ääää", 8, "ääää"),
        ("äääää", 8, "ää…"),
        ("", 8, ""),
    ],
)
def test_a_note_is_cut_between_characters(text: str, limit: int, short: str) -> None:
    assert shorten(text, limit) == short
    assert len(short.encode()) <= limit
