"""What each message from the API server changes, and that no accident of transport shows in the end."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vramline.kube.mirror import (
    Added,
    Arrived,
    Change,
    Changed,
    Deleted,
    Departed,
    Message,
    Mirror,
    Reached,
    Resumed,
    Snapshot,
    Synced,
)
from vramline.kube.objects import ObjectKey, Stored, Unreadable

A, B = ObjectKey("a"), ObjectKey("b")


def stored(key: ObjectKey, version: int, uid: str = "u1") -> Stored[int]:
    """An object whose content is its version."""
    return Stored(key=key, uid=uid, version=version, value=version)


def unreadable(key: ObjectKey, version: int, uid: str = "u1") -> Unreadable:
    return Unreadable(key=key, uid=uid, version=version, problem="nonsense")


def play(*messages: Message[int]) -> list[list[Change[int]]]:
    mirror: Mirror[int] = Mirror()
    return [mirror.step(message) for message in messages]


START: Snapshot[int] = Snapshot((stored(A, 3),), 10)


@pytest.mark.parametrize(
    ("messages", "last_changes"),
    [
        pytest.param([START], [Added(stored(A, 3)), Synced(10)], id="a snapshot tells what is there"),
        pytest.param([Snapshot((), 10)], [Synced(10)], id="nothing there is something to tell too"),
        pytest.param([START, Arrived(stored(B, 11))], [Added(stored(B, 11))], id="a new object"),
        pytest.param([START, Arrived(stored(A, 11))], [Changed(stored(A, 11))], id="a newer version"),
        pytest.param([START, Arrived(stored(A, 9))], [], id="what the snapshot knew already"),
        pytest.param([START, Arrived(stored(A, 12)), Arrived(stored(A, 11))], [], id="an older version late"),
        pytest.param([START, Departed(A, 11)], [Deleted(A, "u1")], id="an end"),
        pytest.param([START, Departed(A, 11), Departed(A, 11)], [], id="an end twice"),
        pytest.param([START, Departed(A, 9)], [], id="an end older than the snapshot"),
        pytest.param(
            [START, Departed(A, 11), Arrived(stored(A, 12, "u2")), Departed(A, 11)],
            [],
            id="an end told again when the name is used again",
        ),
        pytest.param([START, Departed(B, 11)], [], id="the end of something unknown"),
        pytest.param([START, Departed(A, 12), Arrived(stored(A, 11))], [], id="nothing comes back to life"),
        pytest.param(
            [START, Departed(A, 11), Arrived(stored(A, 12, "u2"))],
            [Added(stored(A, 12, "u2"))],
            id="the name is used again",
        ),
        pytest.param(
            [START, Arrived(stored(A, 12, "u2"))],
            [Deleted(A, "u1"), Added(stored(A, 12, "u2"))],
            id="another object of the same name means that the first has ended",
        ),
        pytest.param(
            [START, Snapshot((stored(A, 3),), 20)], [Synced(20)], id="a second snapshot without a difference"
        ),
        pytest.param(
            [START, Snapshot((stored(B, 15),), 20)],
            [Deleted(A, "u1"), Added(stored(B, 15)), Synced(20)],
            id="a snapshot shows what ended meanwhile",
        ),
        pytest.param(
            [START, Snapshot((stored(A, 15, "u2"),), 20)],
            [Deleted(A, "u1"), Added(stored(A, 15, "u2")), Synced(20)],
            id="a snapshot shows an object that took another one's name",
        ),
        pytest.param(
            [Snapshot((stored(A, 3), stored(A, 5), stored(A, 4)), 10)],
            [Added(stored(A, 5)), Synced(10)],
            id="an object twice in a snapshot counts once",
        ),
        pytest.param(
            [START, Arrived(stored(A, 30)), Snapshot((stored(A, 3),), 20)],
            [Changed(stored(A, 3)), Synced(20)],
            id="an older snapshot, once believed, is the truth",
        ),
        pytest.param(
            [START, Departed(A, 30), Snapshot((), 20), Arrived(stored(A, 25, "u2"))],
            [Added(stored(A, 25, "u2"))],
            id="and what was known of later times is forgotten",
        ),
        pytest.param([START, Reached(20), Arrived(stored(B, 15))], [], id="old news after a bookmark"),
        pytest.param(
            [START, Reached(20), Arrived(stored(B, 21))], [Added(stored(B, 21))], id="news after it"
        ),
        pytest.param(
            [START, Departed(A, 11), Resumed(), Arrived(stored(A, 11))], [], id="old news after a new start"
        ),
        pytest.param([START, Arrived(unreadable(B, 11))], [unreadable(B, 11)], id="content that is wrong"),
        pytest.param(
            [START, Arrived(unreadable(B, 11)), Arrived(stored(B, 12))],
            [Added(stored(B, 12))],
            id="put right",
        ),
        pytest.param(
            [START, Arrived(unreadable(A, 11)), Arrived(stored(A, 12))],
            [Changed(stored(A, 12))],
            id="known, wrong for a while, put right",
        ),
        pytest.param(
            [START, Arrived(unreadable(A, 11)), Departed(A, 12)],
            [Deleted(A, "u1")],
            id="the end of something that is wrong",
        ),
        pytest.param(
            [START, Arrived(unreadable(B, 11)), Departed(B, 12)],
            [Deleted(B, "u1")],
            id="the end of something that was never right",
        ),
    ],
)
def test_what_a_message_changes(messages: list[Message[int]], last_changes: list[Change[int]]) -> None:
    assert play(*messages)[-1] == last_changes


def test_ends_are_not_remembered_for_ever() -> None:
    mirror: Mirror[int] = Mirror()
    mirror.step(Snapshot((), 1))
    for version in range(2, 1000):
        mirror.step(Departed(ObjectKey(f"pod-{version}"), version))
    mirror.step(Reached(1000))

    assert mirror._ended == {}


KEYS = st.sampled_from([A, B, ObjectKey("c"), ObjectKey("a", "ns")])
VERSIONS = st.integers(1, 9)
ITEMS = st.one_of(
    st.builds(stored, KEYS, VERSIONS, st.sampled_from(["u1", "u2"])),
    st.builds(unreadable, KEYS, VERSIONS),
)
MESSAGES = st.one_of(
    st.builds(Arrived, ITEMS), st.builds(Departed, KEYS, VERSIONS), st.builds(Reached, VERSIONS)
)


@given(st.lists(MESSAGES, max_size=5), st.lists(ITEMS, max_size=6, unique_by=lambda item: item.key))
def test_objects_met_together_are_known_as_if_they_had_come_one_by_one(
    before: list[Message[int]], items: list[Stored[int] | Unreadable]
) -> None:
    one_by_one, together = Mirror[int](), Mirror[int]()
    for message in before:
        one_by_one.step(message)
        together.step(message)

    told = [change for item in items for change in one_by_one.step(Arrived(item))]
    new, rest = together.meet(items)
    told_together: list[Change[int]] = [Added(each) for each in new]
    told_together += [change for item in rest for change in together.step(Arrived(item))]

    assert sorted(told_together, key=repr) == sorted(told, key=repr)
    assert vars(together) == vars(one_by_one)


class Transport(RuleBasedStateMachine):
    """A server whose messages are delivered late, twice, or not at all until the next snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.mirror: Mirror[int] = Mirror()
        self.version = 1
        self.server: dict[ObjectKey, Stored[int]] = {}
        self.waiting: list[Arrived[int] | Departed] = []
        self.delivered: list[Arrived[int] | Departed] = []
        self.lost = False
        self.consumer: dict[ObjectKey, Stored[int]] = {}
        self.ends: Counter[str] = Counter()
        self.hear(Snapshot((), 1))

    def hear(self, message: Message[int]) -> None:
        for change in self.mirror.step(message):
            match change:
                case Added(object=item):
                    assert item.key not in self.consumer
                    self.consumer[item.key] = item
                case Changed(object=item):
                    assert self.consumer[item.key].uid == item.uid
                    self.consumer[item.key] = item
                case Deleted(key=key, uid=uid):
                    assert self.consumer.pop(key).uid == uid
                    self.ends[uid] += 1

    @rule(name=st.sampled_from("abc"))
    def write(self, name: str) -> None:
        self.version += 1
        key = ObjectKey(name)
        uid = self.server[key].uid if key in self.server else f"{name}{self.version}"
        self.server[key] = stored(key, self.version, uid)
        self.waiting.append(Arrived(self.server[key]))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.version += 1
        key = data.draw(st.sampled_from(sorted(self.server)))
        del self.server[key]
        self.waiting.append(Departed(key, self.version))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Deliver any message that is the first about its object."""
        firsts: dict[ObjectKey, int] = {}
        for place, message in enumerate(self.waiting):
            firsts.setdefault(_key_of(message), place)
        message = self.waiting.pop(data.draw(st.sampled_from(sorted(firsts.values()))))
        self.delivered.append(message)
        self.hear(message)

    @precondition(lambda self: self.delivered)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        self.hear(data.draw(st.sampled_from(self.delivered)))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.lost = True

    @precondition(lambda self: not self.waiting and not self.lost)
    @rule(bookmark=st.booleans())
    def pause(self, bookmark: bool) -> None:
        self.hear(Reached(self.version) if bookmark else Resumed())

    @precondition(lambda self: self.lost)
    @rule()
    def list_again(self) -> None:
        self.waiting.clear()
        self.lost = False
        self.hear(Snapshot(tuple(self.server.values()), self.version))

    @invariant()
    def every_end_is_told_once(self) -> None:
        assert all(count == 1 for count in self.ends.values())

    @invariant()
    def the_consumer_knows_what_the_server_has(self) -> None:
        if not self.waiting and not self.lost:
            assert self.consumer == self.server

    def teardown(self) -> None:
        self.list_again()
        self.the_consumer_knows_what_the_server_has()
        self.every_end_is_told_once()


def _key_of(message: Arrived[int] | Departed) -> ObjectKey:
    return message.item.key if isinstance(message, Arrived) else message.key


TestTransport = Transport.TestCase
