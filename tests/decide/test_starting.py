"""Whether a card still holds what was promised on it, a moment before it is used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.decide.starting import Judgement, SeenCard, judge_start
from vramline.model.ask import RealtimeMode
from vramline.model.claim import Claim
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation, Unknown
from vramline.units import Mib

CARD = PhysicalGpu(uuid="GPU-a", node="n", total=Mib(24_500), reserved=Mib(500))
OURS = Claim(pod_uid="u", pod="ml/a", gpu="GPU-a", mib=Mib(16_000))
OTHER = Claim(pod_uid="o", pod="ml/other", gpu="GPU-a", mib=Mib(6_000))


def process(pod_uid: str | None, used: int) -> GpuProcess:
    return GpuProcess(pid=1, used=Mib(used), pod_uid=pod_uid)


def judge(
    *processes: GpuProcess,
    used: int | None = None,
    listed: bool = True,
    claims: tuple[Claim, ...] = (OURS, OTHER),
    has_run: bool = False,
) -> Judgement:
    total = sum(each.used for each in processes if not isinstance(each.used, Unknown))
    seen = Observation(
        at=1.0, used=Mib(total if used is None else used), processes=processes if listed else NOT_REPORTED
    )
    return judge_start("ml/a", claims, {"GPU-a": SeenCard(CARD, seen)}, margin=Mib(100), has_run=has_run)


def short_by(judged: Judgement) -> int:
    assert judged.unseen == ()
    return sum(each.short for each in judged.short)


@pytest.mark.parametrize(
    ("processes", "short"),
    [
        pytest.param((), 0, id="an idle card"),
        pytest.param((process("o", 6_000),), 0, id="others use what is theirs"),
        pytest.param((process("o", 9_000),), 1_000, id="others use more than is theirs"),
        pytest.param((process(None, 2_000),), 0, id="nobody's memory in the room that is left"),
        pytest.param((process(None, 2_001),), 1, id="one MiB more"),
        pytest.param((process("gone", 5_000),), 3_000, id="memory of a pod that has no claim"),
        pytest.param((process("u", 10_000),), 0, id="its own memory, of another container"),
        pytest.param((process("u", 19_000),), 1_000, id="its own, more than promised"),
    ],
)
def test_a_start_needs_room_for_every_promise_on_the_card(
    processes: tuple[GpuProcess, ...], short: int
) -> None:
    assert short_by(judge(*processes)) == short


def test_the_whole_card_without_margin_can_still_start() -> None:
    whole = Claim(pod_uid="u", pod="ml/a", gpu="GPU-a", mib=Mib(24_000))

    assert short_by(judge(claims=(whole,), used=80)) == 0
    assert short_by(judge(claims=(whole,), used=180)) == 80


@pytest.mark.parametrize(
    ("used", "has_run", "short"),
    [
        pytest.param(6_000, False, 0, id="all of it may be the others'"),
        pytest.param(9_000, False, 1_000, id="more than the others' is nobody's before the first start"),
        pytest.param(9_000, True, 0, id="later it may be its own"),
        pytest.param(23_500, True, 0, id="up to what all were promised, and the room that is left"),
        pytest.param(24_001, True, 1, id="beyond that it is not"),
    ],
)
def test_without_a_list_of_processes_doubt_speaks_for_the_pod(used: int, has_run: bool, short: int) -> None:
    assert short_by(judge(used=used, listed=False, has_run=has_run)) == short


def test_a_card_that_was_not_seen_is_neither_short_nor_fine() -> None:
    silent = SeenCard(CARD, Observation(at=1.0))

    for cards in ({}, {"GPU-a": SeenCard(CARD, None)}, {"GPU-a": silent}):
        judged = judge_start("ml/a", [OURS, OTHER], cards, margin=Mib(100), has_run=False)
        assert judged.short == ()
        assert [each.gpu for each in judged.unseen] == ["GPU-a"]


def test_only_the_cards_of_the_pod_are_judged() -> None:
    elsewhere = Claim(pod_uid="o", pod="ml/other", gpu="GPU-b", mib=Mib(6_000))

    judged = judge(claims=(OURS, elsewhere))

    assert judged == Judgement()


def test_a_judgement_is_told_apart_by_mode() -> None:
    lax = Claim(pod_uid="u", pod="ml/a", gpu="GPU-a", mib=Mib(16_000), mode=RealtimeMode.WARNING)

    judged = judge(process(None, 12_000), claims=(lax,))

    assert len(judged.only(RealtimeMode.WARNING).short) == 1
    assert judged.only(RealtimeMode.STRICT) == Judgement()


MEMORY = st.integers(0, 24_000)


@given(
    others=st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(1, 24_000), MEMORY)),
    strangers=MEMORY,
    own=st.tuples(st.integers(1, 24_000), MEMORY),
)
def test_who_may_start_finds_the_memory_on_the_card(
    others: dict[str, tuple[int, int]], strangers: int, own: tuple[int, int]
) -> None:
    """Promised and used MiB by pod: agreement means room for the whole claim, and for every other."""
    mib, used = own
    claims = [Claim(pod_uid="u", pod="ml/a", gpu="GPU-a", mib=Mib(mib))]
    claims += [
        Claim(pod_uid=uid, pod=f"ml/{uid}", gpu="GPU-a", mib=Mib(most)) for uid, (most, _) in others.items()
    ]
    processes = [process("u", used), process(None, strangers)]
    processes += [process(uid, most) for uid, (_, most) in others.items()]

    judged = judge(*processes, claims=tuple(claims), has_run=True)

    elsewhere = strangers + sum(now for _, now in others.values())
    promised_elsewhere = strangers + sum(max(most, now) for most, now in others.values())
    if not judged.short:
        assert CARD.usable - elsewhere >= mib
        assert CARD.usable - promised_elsewhere >= max(mib, used)
    else:
        assert CARD.usable - promised_elsewhere < max(mib, used)
