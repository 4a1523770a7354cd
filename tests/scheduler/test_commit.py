"""The commit protocol: nothing lost, doubled or over-promised, whatever is interrupted."""

import asyncio
import os
from contextlib import suppress
from random import Random

import msgspec
import pytest

from scheduler.memory_store import Crash, MemoryStore
from scheduler.replicas import NODES, Replica, check_books, claims_in, gpu_pod, promised
from vramline.explain.history import History as DecisionHistory
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.journal import Journal
from vramline.scheduler.store import Binding, Done
from vramline.scheduler.verbs import filter_nodes
from vramline.wire import keys
from vramline.wire.extender_v1 import ExtenderArgs

HISTORIES = int(os.environ.get("SOAK_HISTORIES", "30"))
"""How many histories are lived through for each rate of faults and crashes; `make soak` takes more."""


def test_a_bind_takes_two_writes_and_seals_the_allocation() -> None:
    store = MemoryStore(Random(1))
    store.create_pod(gpu_pod(1))
    replica = Replica(store)

    outcome = asyncio.run(replica.committer.bind("uid-1", "n1"))

    assert (outcome.refused, store.writes) == ("", 2)
    annotations = store.pods["uid-1"].metadata.annotations or {}
    assert annotations[keys.VISIBLE_DEVICES] == "GPU-n1"
    check_books(store)


def test_forty_pods_to_one_node_at_once_share_their_ledger_writes() -> None:
    store = MemoryStore(Random(2))
    for number in range(40):
        store.create_pod(gpu_pod(number, 100))
    replica = Replica(store)

    async def bind_all() -> list[str]:
        outcomes = await asyncio.gather(*(replica.committer.bind(f"uid-{n}", "n1") for n in range(40)))
        return [outcome.refused for outcome in outcomes]

    assert asyncio.run(bind_all()) == [""] * 40
    assert store.writes < 60
    check_books(store)


def test_twenty_four_pods_for_one_card_at_once_leave_exactly_four_bound() -> None:
    store = MemoryStore(Random(3))
    for number in range(24):
        store.create_pod(gpu_pod(number))
    replica = Replica(store)

    async def bind_all() -> list[str]:
        outcomes = await asyncio.gather(*(replica.committer.bind(f"uid-{n}", "n1") for n in range(24)))
        return [outcome.refused for outcome in outcomes]

    refusals = [refused for refused in asyncio.run(bind_all()) if refused]
    assert len(refusals) == 20
    assert all("InsufficientVram" in refused for refused in refusals)
    check_books(store)


def test_a_follower_binds_nothing() -> None:
    store = MemoryStore(Random(4))
    store.create_pod(gpu_pod(1))
    replica = Replica(store)
    replica.epoch = None

    assert asyncio.run(replica.committer.bind("uid-1", "n1")).refused == "this replica does not lead"
    assert store.writes == 0


def test_a_deposed_leader_cannot_write_over_its_successor() -> None:
    store = MemoryStore(Random(5))
    store.create_pod(gpu_pod(1))
    store.create_pod(gpu_pod(2))
    old, new = Replica(store, epoch=1), Replica(store, epoch=2)
    asyncio.run(new.committer.bind("uid-1", "n1"))

    refused = asyncio.run(old.committer.bind("uid-2", "n1")).refused

    assert "leader 2 wrote here; this is 1" in refused
    assert promised(store, "n1") == 8_000
    check_books(store)


def test_a_pod_whose_status_was_patched_meanwhile_is_bound_all_the_same() -> None:
    store = MemoryStore(Random(6))
    store.create_pod(gpu_pod(1))
    replica = Replica(store)
    store.touch_pod("uid-1")

    assert asyncio.run(replica.committer.bind("uid-1", "n1")).refused == ""
    check_books(store)


def test_a_pod_deleted_meanwhile_leaves_no_claim() -> None:
    store = MemoryStore(Random(7))
    store.create_pod(gpu_pod(1))
    replica = Replica(store)
    store.delete_pod("uid-1")

    assert asyncio.run(replica.committer.bind("uid-1", "n1")).refused
    assert promised(store, "n1") == 0


def die_before_binding(store: MemoryStore, uid: str, node: str) -> None:
    """A leader is killed between the claim and the binding."""
    original = store.bind

    async def die(binding: Binding) -> Done:
        raise Crash(binding)

    store.bind = die  # type: ignore[method-assign]
    with pytest.raises(Crash):
        asyncio.run(Replica(store).committer.bind(uid, node))
    store.bind = original  # type: ignore[method-assign]


def test_a_pod_that_is_tried_anew_is_not_refused_because_of_its_own_old_promise() -> None:
    store = MemoryStore(Random(11))
    store.create_pod(gpu_pod(1, 32_000))
    die_before_binding(store, "uid-1", "n1")
    heir = Replica(store, epoch=2)
    args = ExtenderArgs(pod=msgspec.to_builtins(store.pods["uid-1"]), names=("n1",))

    cluster = RealCluster(heir.live, heir.committer)
    answer = asyncio.run(filter_nodes(cluster, Journal(DecisionHistory()), args))

    assert (answer.node_names, promised(store, "n1")) == (["n1"], 0)


def test_a_promise_whose_binding_is_being_written_is_not_recalled() -> None:
    store = MemoryStore(Random(12))
    store.create_pod(gpu_pod(1))
    replica = Replica(store)
    original = store.bind

    async def bind_while_filtered(binding: Binding) -> object:
        await replica.committer.recall("uid-1")
        return await original(binding)

    store.bind = bind_while_filtered  # type: ignore[assignment, method-assign]

    assert asyncio.run(replica.committer.bind("uid-1", "n1")).refused == ""
    assert (promised(store, "n1"), store.writes) == (8_000, 2)


def test_an_orphan_claim_is_reaped_after_the_grace_period_and_not_before() -> None:
    store = MemoryStore(Random(8))
    store.create_pod(gpu_pod(1))
    die_before_binding(store, "uid-1", "n1")
    heir = Replica(store, epoch=2)

    assert promised(store, "n1") == 8_000
    asyncio.run(heir.committer.reap())
    assert promised(store, "n1") == 8_000
    heir.now += 60.0
    asyncio.run(heir.committer.reap())
    assert promised(store, "n1") == 0


def test_a_claim_that_is_over_goes_in_the_same_write_in_which_its_memory_is_promised_again() -> None:
    store = MemoryStore(Random(10))
    store.create_pod(gpu_pod(1, 32_000))
    replica = Replica(store)
    asyncio.run(replica.committer.bind("uid-1", "n1"))
    store.delete_pod("uid-1")
    replica.live.drop_pod("uid-1")
    store.create_pod(gpu_pod(2, 32_000))
    replica.live.set_pod(store.pods["uid-2"])
    replica.now += 61.0
    replica.live.settle()  # the removal itself was not written: say, the API server was busy

    outcome = asyncio.run(replica.committer.bind("uid-2", "n1"))

    assert outcome.refused == ""
    assert promised(store, "n1") == 32_000


def test_an_orphan_whose_pod_was_bound_behind_a_lagging_watch_is_kept() -> None:
    store = MemoryStore(Random(9))
    store.create_pod(gpu_pod(1))
    first, lagging = Replica(store, epoch=1), Replica(store, epoch=1)
    asyncio.run(first.committer.bind("uid-1", "n1"))
    lagging.live.set_ledger(store.ledgers["n1"])
    asyncio.run(lagging.committer.reap())
    lagging.now += 61.0
    asyncio.run(lagging.committer.reap())

    assert promised(store, "n1") == 8_000
    check_books(store)


@pytest.mark.parametrize("faults", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("crashes", [0.0, 0.05])
def test_any_interleaving_of_two_leaders_faults_and_crashes_keeps_the_books(
    faults: float, crashes: float
) -> None:
    for seed in range(HISTORIES):
        live_through(Random(seed), faults, crashes)


def live_through(random: Random, faults: float, crashes: float) -> None:
    """One history, until the dust has settled: then exactly the bound pods hold claims."""
    history = History(random)
    history.store.fault_rate, history.store.crash_rate = faults, crashes
    asyncio.run(history.live())
    for binding in history.store.on_their_way:
        history.store.land(binding)
        check_books(history.store)
    history.store.fault_rate = history.store.crash_rate = 0.0
    check_memories(history)
    asyncio.run(history.settle())
    pods = history.store.pods.items()
    bound = {uid for uid, pod in pods if pod.spec is not None and pod.spec.node_name}
    kept = {claim.pod_uid for ledger in history.store.ledgers.values() for claim in ledger.claims}

    assert kept == bound
    check_books(history.store)


def check_memories(history: "History") -> None:
    """What a replica made of every change in turn is what a new one reads from the objects at the end."""
    fresh = claims_in(Replica(history.store, epoch=9).live)
    for replica in history.replicas:
        history.store.deliver(replica.live)
        # A kill inside a bind leaves its hold behind; a killed process would not.
        held = {uid for uid in history.store.pods if replica.live.is_held(uid)}
        assert {c for c in claims_in(replica.live) if c[0] not in held} == {
            c for c in fresh if c[0] not in held
        }


class History:
    """Two leaders, lagging watches, lost answers that land late, kills."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.store = MemoryStore(random)
        for number in range(12):
            self.store.create_pod(gpu_pod(number, random.choice([500, 8_000, 20_000, 32_500])))
        self.replicas = [Replica(self.store, epoch=1), Replica(self.store, epoch=2)]

    async def live(self) -> None:
        tasks = []
        for _ in range(30):
            tasks.append(asyncio.create_task(self.attempt()))
            await asyncio.sleep(0)
            self.disturb()
            check_books(self.store)
        await asyncio.gather(*tasks)

    async def attempt(self) -> None:
        replica, number = self.random.choice(self.replicas), self.random.randrange(12)
        with suppress(Crash):
            await replica.committer.recall(f"uid-{number}")  # the pod is filtered
            await replica.committer.bind(f"uid-{number}", self.random.choice(NODES))
        check_books(self.store)

    def disturb(self) -> None:
        """Something else happens to a pod, a late binding lands, or a watch catches up a little."""
        chance, late = self.random.random(), self.store.on_their_way
        if chance < 0.2 and self.store.pods:
            uid = self.random.choice(sorted(self.store.pods))
            self.store.touch_pod(uid) if chance < 0.13 else self.store.delete_pod(uid)
        if late and self.random.random() < 0.3:
            self.store.land(late.pop(self.random.randrange(len(late))))
        self.store.deliver(self.random.choice(self.replicas).live, self.random.randrange(4))

    async def settle(self) -> None:
        """A fresh leader takes back every promise that was not kept."""
        heir = Replica(self.store, epoch=3)
        for _ in range(3):
            await heir.committer.reap()
            self.store.deliver(heir.live)
            heir.now += 61.0
