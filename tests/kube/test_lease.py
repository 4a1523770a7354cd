"""Who leads, decided step by step without a server, and by chance with several replicas."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from vramline.kube.lease import (
    Action,
    Election,
    Failed,
    Look,
    Moment,
    Read,
    Record,
    Rest,
    Terms,
    Tick,
    Write,
    Written,
    step,
)

TERMS = Terms(identity="me")
OTHERS = Record(holder="other", epoch=4, duration_s=15, acquired_us=1, renewed_us=1, version=7)


def at(seconds: float, floor: int = 0) -> Moment:
    return Moment(seconds, round(seconds * 1e6), floor)


def lead(state: Election, seconds: float, version: int = 8) -> Election:
    """Take or renew the Lease at this moment; the answer comes at once."""
    state, action = step(state, Tick(), at(seconds))
    if isinstance(action, Look):
        state, action = step(state, Read(state.seen), at(seconds))
    assert isinstance(action, Write)
    return step(state, Written(replace(action.record, version=version)), at(seconds))[0]


def test_where_there_is_no_lease_it_is_made() -> None:
    state, action = step(Election(terms=TERMS), Tick(), at(100))
    assert action == Look()
    _, action = step(state, Read(None), at(100))

    assert action == Write(
        Record(
            holder="me", epoch=1, duration_s=15, acquired_us=100_000_000, renewed_us=100_000_000, version=0
        )
    )


def test_another_ones_lease_is_left_alone() -> None:
    state, action = step(Election(terms=TERMS), Read(OTHERS), at(100))

    assert action == Rest()
    assert step(state, Tick(), at(102))[1] == Look()


def test_it_expires_by_our_own_clock_since_it_last_changed() -> None:
    state, _ = step(Election(terms=TERMS), Read(OTHERS), at(100))
    state, _ = step(state, Read(replace(OTHERS, renewed_us=2, version=8)), at(110))  # renewed
    state, early = step(state, Read(replace(OTHERS, renewed_us=2, version=8)), at(124.9))
    state, late = step(state, Read(replace(OTHERS, renewed_us=2, version=8)), at(125))

    assert early == Rest()
    assert isinstance(late, Write)
    assert (late.record.holder, late.record.epoch, late.record.version) == ("me", 5, 8)


@pytest.mark.parametrize("renewed_us", [-(10**15), 10**18], ids=["long ago", "in the future"])
def test_the_clock_of_the_holder_means_nothing(renewed_us: int) -> None:
    state, first = step(Election(terms=TERMS), Read(replace(OTHERS, renewed_us=renewed_us)), at(100))
    _, then = step(state, Read(replace(OTHERS, renewed_us=renewed_us)), at(116))

    assert first == Rest()
    assert isinstance(then, Write)


def test_a_renewal_counts_although_the_clock_of_the_holder_stands_still() -> None:
    state, _ = step(Election(terms=TERMS), Read(OTHERS), at(100))
    state, _ = step(state, Read(replace(OTHERS, version=8)), at(110))

    assert step(state, Read(replace(OTHERS, version=8)), at(120))[1] == Rest()


def test_a_released_lease_is_taken_at_once_in_a_new_epoch() -> None:
    _, action = step(Election(terms=TERMS), Read(replace(OTHERS, holder="")), at(100))

    assert isinstance(action, Write)
    assert action.record.epoch == 5


def test_our_name_in_a_lease_is_no_term_of_ours() -> None:
    state, action = step(Election(terms=TERMS), Read(replace(OTHERS, holder="me")), at(100))

    assert not state.is_leading(100)
    assert isinstance(action, Write)
    assert action.record.epoch == 5  # whoever wrote it before us is fenced off


@pytest.mark.parametrize(
    ("place", "holder", "expected"),
    [
        pytest.param("pod-a_", "pod-a_17_abcd", Write, id="of an earlier start of this pod"),
        pytest.param("pod-a_", "pod-b_17_abcd", Rest, id="of another pod"),
        pytest.param("", "pod-a_17_abcd", Rest, id="where the place is not known"),
    ],
)
def test_what_an_earlier_start_in_the_same_place_held_is_free(
    place: str, holder: str, expected: type[Action]
) -> None:
    terms = Terms(identity="pod-a_18_ef01", place=place)
    _, action = step(Election(terms=terms), Read(replace(OTHERS, holder=holder)), at(100))

    assert isinstance(action, expected)


def test_a_leader_renews_without_looking_and_keeps_its_epoch() -> None:
    state = lead(Election(terms=TERMS), 100)
    _, action = step(state, Tick(), at(102))

    assert isinstance(action, Write)
    assert (action.record.epoch, action.record.version, action.record.acquired_us) == (1, 8, 100_000_000)
    assert action.record.renewed_us == 102_000_000


def test_a_term_counts_from_the_sending_not_from_the_answer() -> None:
    state, _ = step(Election(terms=TERMS), Read(None), at(100))
    assert state.pending is not None
    state, _ = step(state, Written(state.pending), at(107))

    assert state.is_leading(109.9)
    assert not state.is_leading(110)


def test_an_answer_after_the_deadline_makes_nobody_leader() -> None:
    state, _ = step(Election(terms=TERMS), Read(None), at(100))
    assert state.pending is not None
    state, _ = step(state, Written(state.pending), at(110))

    assert state.term is None


def test_without_renewal_the_term_ends_and_the_next_one_has_another_epoch() -> None:
    state = lead(Election(terms=TERMS), 100)
    state, _ = step(state, Failed(), at(103))
    state, action = step(state, Tick(), at(111))
    assert (state.term, action) == (None, Look())
    _, action = step(state, Read(state.seen), at(111))

    assert isinstance(action, Write)
    assert action.record.epoch == 2


def test_a_write_whose_answer_was_lost_counts_from_its_sending() -> None:
    state, action = step(Election(terms=TERMS), Read(None), at(100))
    assert isinstance(action, Write)
    state, action_then = step(state, Failed(), at(104))
    assert action_then == Rest()
    state, _ = step(state, Read(replace(action.record, version=3)), at(106))

    assert state.is_leading(109.9)
    assert not state.is_leading(110)
    assert state.seen is not None
    assert state.seen.version == 3


def test_a_lease_that_somebody_took_ends_the_term_at_once() -> None:
    state = lead(Election(terms=TERMS), 100)
    state, _ = step(state, Read(replace(OTHERS, epoch=2)), at(101))

    assert not state.is_leading(101)


def test_epochs_never_go_back() -> None:
    state = lead(Election(terms=TERMS, highest_epoch=9), 100)
    state, action = step(state, Read(None), at(101, floor=40))  # somebody deleted it

    assert state.term is None
    assert isinstance(action, Write)
    assert action.record.epoch == 41


@pytest.mark.parametrize(
    ("lease_s", "renew_deadline_s", "retry_s"), [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 10.0, 0.0)]
)
def test_terms_that_could_overlap_are_refused(lease_s: int, renew_deadline_s: float, retry_s: float) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_deadline_s < lease_s"):
        Terms(identity="me", lease_s=lease_s, renew_deadline_s=renew_deadline_s, retry_s=retry_s)


class Replicas(RuleBasedStateMachine):
    """Three replicas with clocks of their own, an API server that swaps, and a network that loses answers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.offsets = [0.0, 1_000.0, -500.0]
        self.replicas = [Election(terms=Terms(identity=name)) for name in "abc"]
        self.lease: Record | None = None
        self.version = 0
        self.on_the_way: list[tuple[int, Record]] = []
        self.terms: dict[int, str] = {}

    def moment(self, index: int) -> Moment:
        clock = self.now + self.offsets[index]
        return Moment(clock, round(clock * 1e6))

    def take_in(self, index: int, happening: Tick | Read | Written | Failed) -> Action:
        self.replicas[index], action = step(self.replicas[index], happening, self.moment(index))
        return action

    def commit(self, record: Record) -> Record | None:
        """Write by compare-and-swap; None: a conflict."""
        if record.version != (0 if self.lease is None else self.lease.version):
            return None
        self.version += 1
        self.lease = replace(record, version=self.version)
        return self.lease

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 4.0, 9.0, 16.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(index=st.integers(0, 2), luck=st.sampled_from(["done", "done", "done", "lost", "refused", "late"]))
    def act(self, index: int, luck: str) -> None:
        action = self.take_in(index, Tick())
        if isinstance(action, Look):
            action = self.take_in(index, Read(self.lease))
        if not isinstance(action, Write):
            return
        if luck == "late":
            self.on_the_way.append((index, action.record))
            return
        written = None if luck == "refused" else self.commit(action.record)
        self.take_in(index, Failed() if written is None or luck == "lost" else Written(written))

    @precondition(lambda self: self.on_the_way)
    @rule(is_known=st.booleans())
    def arrive_late(self, is_known: bool) -> None:
        index, record = self.on_the_way.pop(0)
        written = self.commit(record)
        expected = self.replicas[index].pending == record
        if written is not None and is_known and expected:
            self.take_in(index, Written(written))
        elif expected:
            self.take_in(index, Failed())

    @rule(index=st.integers(0, 2))
    def resign(self, index: int) -> None:
        term = self.replicas[index].term
        self.replicas[index] = replace(self.replicas[index], term=None, is_sure=False)
        if term is not None:
            self.commit(replace(term, holder="", duration_s=1, renewed_us=round(self.now * 1e6)))

    @invariant()
    def at_most_one_leads(self) -> None:
        leading = [
            replica
            for index, replica in enumerate(self.replicas)
            if replica.is_leading(self.moment(index).monotonic)
        ]

        assert len(leading) <= 1
        for replica in leading:
            assert replica.term is not None
            assert self.terms.setdefault(replica.term.epoch, replica.terms.identity) == replica.terms.identity
            assert replica.term.epoch == max(self.terms)


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=200, stateful_step_count=60)
