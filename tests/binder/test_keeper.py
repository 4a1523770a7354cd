"""Reservations end with the last claim, come back when they are lost, and nobody's pod pays for it."""

import asyncio
from random import Random

import pytest

from binder.memory_world import CARD_MIB, OPTIONS, Replica, World, shared_pod, stranger, whole_pod
from scheduler.memory_store import Crash
from vramline.binder.keeper import LostCard, Stranger
from vramline.scheduler.store import Binding
from vramline.wire import keys
from vramline.wire.bind_request_v1alpha1 import BindPhase
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger

FULL = CARD_MIB - 100


def world_of(*pods: PodObject, seed: int = 1) -> tuple[World, Replica]:
    world = World(Random(seed))
    for pod in pods:
        world.create_pod(pod)
    return world, Replica(world)


def held(world: World) -> list[str]:
    return sorted(world.given[pod.metadata.uid or ""] for pod in world.reservations())


def card_of(world: World, uid: str) -> str:
    return (world.pods[uid].metadata.annotations or {}).get(keys.VISIBLE_DEVICES, "")


def release(world: World, replica: Replica, uid: str) -> None:
    """A pod goes, and after the grace period its memory counts as free."""
    world.delete_pod(uid)
    replica.hear()
    replica.now += 61.0
    asyncio.run(replica.committer.reap())
    replica.hear()


def test_a_reservation_goes_with_the_last_claim_and_not_before() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2))
    asyncio.run(replica.bind("uid-1", "n1"))
    asyncio.run(replica.bind("uid-2", "n1"))

    release(world, replica, "uid-1")
    asyncio.run(replica.keep())
    assert len(world.reservations()) == 1

    release(world, replica, "uid-2")
    asyncio.run(replica.keep())
    assert world.reservations() == []


def test_a_reservation_stays_while_memory_is_not_free_yet() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n1"))
    world.delete_pod("uid-1")
    replica.hear()

    asyncio.run(replica.keep())

    assert len(world.reservations()) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_reservation_that_is_deleted_under_a_pod_comes_back_for_the_same_card(seed: int) -> None:
    world, replica = world_of(shared_pod(1), seed=seed)
    asyncio.run(replica.bind("uid-1", "n1"))
    card = card_of(world, "uid-1")
    (reservation,) = world.reservations()
    world.delete_pod(reservation.metadata.uid or "")

    asyncio.run(replica.keep(rounds=15))

    assert held(world) == [card]
    assert "uid-1" in world.pods


def test_a_node_that_lost_its_checkpoint_gets_its_reservation_back() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n2"))
    world.reboot("n2")

    asyncio.run(replica.keep(rounds=3))
    replica.keeper._pauses.clear()  # the pause after a rejection is over
    asyncio.run(replica.keep(rounds=6))

    assert held(world) == [card_of(world, "uid-1")]


def test_a_card_that_kubelet_gave_to_a_stranger_meanwhile_is_told_and_nobody_is_sent_away() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n2"))
    (reservation,) = world.reservations()
    world.delete_pod(reservation.metadata.uid or "")
    world.create_pod(stranger(9, "n2"))
    world.kubelets_act()

    for _ in range(3):
        asyncio.run(replica.keep(rounds=3))
        replica.keeper._pauses = {
            name: type(pause)(0.0, pause.length_s) for name, pause in replica.keeper._pauses.items()
        }

    assert LostCard("n2", "GPU-n2-0") in replica.told
    assert any(isinstance(each, Stranger) and each.pod == "ns/s9" for each in replica.told)
    assert {"uid-1", "uid-s9"} <= world.pods.keys()


def test_a_follower_does_nothing() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n1"))
    release(world, replica, "uid-1")
    replica.epoch = None

    asyncio.run(replica.keep())

    assert len(world.reservations()) == 1


def test_a_deposed_leader_ends_nothing_where_its_successor_has_promised() -> None:
    world, old = world_of(shared_pod(1), shared_pod(2))
    asyncio.run(old.bind("uid-1", "n2"))
    release(world, old, "uid-1")
    new = Replica(world, epoch=2)
    asyncio.run(new.bind("uid-2", "n2"))

    asyncio.run(old.keeper.round())  # it has not heard of the new claim

    assert held(world) == ["GPU-n2-0"]


def test_a_bind_that_was_killed_while_it_waited_is_taken_up() -> None:
    world, replica = world_of(shared_pod(1))

    async def die_while_waiting() -> None:
        task = asyncio.create_task(replica.committer.bind("uid-1", "n1"))
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(die_while_waiting())
    assert world.requests["ns", "p1"].request.phase is BindPhase.PENDING

    heir = Replica(world, epoch=2)
    asyncio.run(heir.keep(rounds=30))

    request = world.requests["ns", "p1"].request
    assert (request.phase, request.attempts) == (BindPhase.SUCCEEDED, 2)
    assert held(world) == [card_of(world, "uid-1")]


def test_a_bind_that_was_killed_before_its_end_was_written_gets_its_record() -> None:
    world, replica = world_of(shared_pod(1))
    original = world.bind

    async def land_and_die(binding: Binding) -> object:
        await original(binding)
        raise Crash

    world.bind = land_and_die  # type: ignore[assignment, method-assign]
    with pytest.raises(Crash):
        asyncio.run(replica.bind("uid-1", "n1"))
    world.bind = original  # type: ignore[method-assign]
    assert world.requests["ns", "p1"].request.phase is BindPhase.PENDING

    asyncio.run(Replica(world, epoch=2).keep())

    request = world.requests["ns", "p1"].request
    assert (request.phase, request.attempts) == (BindPhase.SUCCEEDED, 1)
    assert [share.uuid for share in request.given] == [card_of(world, "uid-1")]


def test_a_claim_that_a_killed_leader_left_counts_as_an_attempt_that_failed() -> None:
    """Where the card is held the claim is all that was written; what comes of it is recorded all the same."""
    world, replica = world_of(shared_pod(1), shared_pod(2))
    asyncio.run(replica.bind("uid-1", "n1"))
    kill_at_the_binding(world, replica, "uid-2")
    assert ("ns", "p2") not in world.requests
    assert [claim.pod_uid for claim in world.ledgers["n1"].claims] == ["uid-1", "uid-2"]
    heir = Replica(world, epoch=2)
    heir.hear()

    asyncio.run(heir.committer.recall("uid-2"))

    request = world.requests["ns", "p2"].request
    assert (request.phase, request.attempts, request.node) == (BindPhase.FAILED, 1, "n1")
    assert [claim.pod_uid for claim in world.ledgers["n1"].claims] == ["uid-1"]

    assert asyncio.run(heir.bind("uid-2", "n1")) == ""

    request = world.requests["ns", "p2"].request
    assert (request.phase, request.attempts) == (BindPhase.SUCCEEDED, 2)


def test_an_attempt_counts_once_however_many_successors_are_killed_while_they_take_its_claim_back() -> None:
    world, replica = world_of(shared_pod(1), shared_pod(2))
    asyncio.run(replica.bind("uid-1", "n1"))
    kill_at_the_binding(world, replica, "uid-2")
    original = world.write_ledger

    async def die_at_the_removal(ledger: GpuLedger) -> object:
        if "uid-2" not in {claim.pod_uid for claim in ledger.claims}:
            raise Crash
        return await original(ledger)

    world.write_ledger = die_at_the_removal  # type: ignore[assignment, method-assign]
    for epoch in (2, 3, 4):
        heir = Replica(world, epoch=epoch)
        with pytest.raises(Crash):
            asyncio.run(heir.committer.recall("uid-2"))
        assert world.requests["ns", "p2"].request.attempts == 1
    world.write_ledger = original  # type: ignore[method-assign]

    asyncio.run(Replica(world, epoch=5).committer.recall("uid-2"))

    request = world.requests["ns", "p2"].request
    assert (request.phase, request.attempts) == (BindPhase.FAILED, 1)
    assert [claim.pod_uid for claim in world.ledgers["n1"].claims] == ["uid-1"]


def kill_at_the_binding(world: World, replica: Replica, uid: str) -> None:
    original = world.bind

    async def die(binding: Binding) -> object:
        del binding
        raise Crash

    world.bind = die  # type: ignore[assignment, method-assign]
    with pytest.raises(Crash):
        asyncio.run(replica.bind(uid, "n1"))
    world.bind = original  # type: ignore[method-assign]


def test_a_bind_elsewhere_ends_the_request_of_another_node_as_failed_and_gets_a_record_of_its_own() -> None:
    world, replica = world_of(shared_pod(1))

    async def die_while_waiting() -> None:
        task = asyncio.create_task(replica.committer.bind("uid-1", "n1"))
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(die_while_waiting())
    assert world.requests["ns", "p1"].request.node == "n1"
    other = Replica(world, epoch=2)
    other.parts.requests.drop("ns", "p1")  # it has not heard of the request
    asyncio.run(other.bind("uid-1", "n2"))
    asyncio.run(Replica(world, epoch=3).keep())

    request = world.requests["ns", "p1"].request
    assert (request.phase, request.node, request.attempts) == (BindPhase.SUCCEEDED, "n2", 2)


@pytest.mark.parametrize("seed", range(4))
def test_the_reservation_of_a_whole_card_goes_when_its_pod_ends(seed: int) -> None:
    world, replica = world_of(whole_pod(1), shared_pod(1, FULL), seed=seed)
    asyncio.run(replica.bind("uid-w1", "n1"))
    asyncio.run(replica.bind("uid-1", "n1"))
    release(world, replica, "uid-w1")

    asyncio.run(replica.keep(rounds=20))

    assert held(world) == [card_of(world, "uid-1")]


def test_nothing_but_reservations_is_ever_ended() -> None:
    world, replica = world_of(shared_pod(1))
    asyncio.run(replica.bind("uid-1", "n1"))
    release(world, replica, "uid-1")
    asyncio.run(replica.keep())

    assert world.ended
    assert all(name.startswith("gpu-reservation-") for name in world.ended)
    assert OPTIONS.namespace == "vramline-reservations"
