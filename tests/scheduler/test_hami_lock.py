"""HAMi's node lock, taken for a pod before it is bound: never from one that needs it, and given back."""

import asyncio

import pytest

from scheduler.test_hami_nodes import MIB, Move, on_node, pod, with_device
from vramline.scheduler.hami_lock import HamiLock
from vramline.scheduler.store import Binding, Refused
from vramline.wire import keys
from vramline.wire.hami import encode_lock
from vramline.wire.kubernetes import PodObject

NOW = 1_000.4
OURS = "1970-01-01T00:16:40Z,ns,ours"


def locking(*pods: PodObject, lock: str = "") -> Move:
    """A leader that takes HAMi's lock, which may be on the node already."""
    move = Move(*pods)
    move.committer.hami_lock = HamiLock(move.store, lambda: NOW)
    if lock:
        move.store.set_lock("n1", lock)
    return move


def lock_of(move: Move) -> str:
    return move.store.locks["n1"].text


def test_a_bound_pod_has_the_lock_until_the_plugin_takes_it_away() -> None:
    move = locking(with_device("ours"))

    assert move.bind("ours") == ""
    assert lock_of(move) == OURS


def test_a_pod_need_not_wait_until_the_one_before_it_has_started() -> None:
    first = with_device("first", **{keys.HAMI_BIND_PHASE: "success"})
    move = locking(with_device("ours"))
    move.live.set_pod(on_node(first, move.store.version + 1))

    assert move.bind("ours") == ""


def test_it_waits_for_one_that_has_yet_to_get_its_devices() -> None:
    first = with_device("first", **{keys.HAMI_BIND_PHASE: "allocating"})
    move = locking(with_device("ours"))
    move.live.set_pod(on_node(first, move.store.version + 1))

    assert "has yet to hand out the devices of ns/first" in move.bind("ours")
    assert "n1" not in move.store.locks


@pytest.mark.parametrize(
    "lock",
    [
        pytest.param(encode_lock("ns", "theirs", at=NOW - 301), id="too-old"),
        pytest.param("1970-01-01T00:10:00Z", id="too-old-and-names-nobody"),
        pytest.param(encode_lock("ns", "gone", at=NOW - 1), id="of-a-pod-that-is-gone"),
        pytest.param(encode_lock("ns", "ours", at=NOW - 1), id="of-the-same-pod"),
    ],
)
def test_a_lock_that_nobody_needs_is_replaced(lock: str) -> None:
    move = locking(with_device("ours"), with_device("theirs"), lock=lock)

    assert move.bind("ours") == ""
    assert lock_of(move) == OURS


@pytest.mark.parametrize(
    ("lock", "says"),
    [
        pytest.param(encode_lock("ns", "theirs", at=NOW - 299), "stands for ns/theirs", id="of-another-pod"),
        pytest.param("1970-01-01T00:16:00Z", "stands for a pod that it does not name", id="names-nobody"),
        pytest.param("soon,ns,theirs", "cannot be read: 'soon,ns,theirs'", id="unreadable"),
    ],
)
def test_a_lock_that_somebody_may_need_is_left_alone(lock: str, says: str) -> None:
    move = locking(with_device("ours"), with_device("theirs"), lock=lock)

    assert says in move.bind("ours")
    assert lock_of(move) == lock


def test_of_two_at_once_one_has_the_lock_and_is_bound() -> None:
    move = locking(with_device("a"), with_device("b"))

    async def both() -> dict[str, str]:
        outcomes = await asyncio.gather(*(move.committer.bind(f"uid-{name}", "n1") for name in "ab"))
        return {name: outcome.refused for name, outcome in zip("ab", outcomes, strict=True)}

    refused = asyncio.run(both())
    (bound,) = [name for name, why in refused.items() if not why]
    assert lock_of(move).endswith(f",ns,{bound}")


def test_a_pod_that_was_not_bound_gives_the_lock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    move = locking(with_device("ours"))

    async def refuse(_: Binding) -> Refused:
        assert lock_of(move) == OURS, "it is taken before the pod is bound"
        return Refused("no")

    monkeypatch.setattr(move.store, "bind", refuse)
    assert move.bind("ours") == "no"
    assert lock_of(move) == ""


def test_a_lock_that_another_has_taken_since_is_not_given_back() -> None:
    move = locking(with_device("ours"))
    theirs = encode_lock("ns", "theirs", at=NOW)
    lock = HamiLock(move.store, lambda: NOW)

    async def lose() -> None:
        assert await lock.take(move.live.pods["uid-ours"], "n1") == ""
        move.store.set_lock("n1", theirs)
        await lock.settle("uid-ours", bound=False)

    asyncio.run(lose())
    assert lock_of(move) == theirs


def test_the_lock_of_a_pod_that_turns_out_to_be_bound_stays() -> None:
    move = locking(with_device("ours"))
    lock = HamiLock(move.store, lambda: NOW)

    async def bind_without_an_answer() -> None:
        assert await lock.take(move.live.pods["uid-ours"], "n1") == ""
        move.store.pods["uid-ours"] = on_node(move.store.pods["uid-ours"], move.store.version + 1)
        await lock.settle("uid-ours", bound=False)

    asyncio.run(bind_without_an_answer())
    assert lock_of(move) == OURS


def test_who_gets_no_device_from_hamis_plugin_takes_no_lock() -> None:
    move = locking(pod("plain", **MIB))

    assert move.bind("plain") == ""
    assert "n1" not in move.store.locks
