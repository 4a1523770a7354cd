"""Reservations: memory held before there is a pod, taken over by its owner's pod, and by nobody else."""

import asyncio
import os
from contextlib import suppress
from random import Random

import msgspec
import pytest

from scheduler.memory_store import Crash, MemoryStore
from scheduler.replicas import NODES, PROMISE, Replica, check_books, claims_in, gpu_pod, promised
from scheduler.reserving import OTHER, TOKEN, desk_of, reserve
from vramline.errors import RequestError
from vramline.explain.history import History as DecisionHistory
from vramline.model.reason import Reason
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.journal import Journal
from vramline.scheduler.reservations import NoRoom, NotDone, Reserved, read_wish
from vramline.scheduler.verbs import filter_nodes
from vramline.wire import keys
from vramline.wire.admission import AdmissionOptions, Refused, plan_admission
from vramline.wire.extender_v1 import ExtenderArgs, ExtenderFilterResult
from vramline.wire.ledger_v1alpha1 import decode_ledger, encode_ledger
from vramline.wire.reservations import seal_of

HISTORIES = int(os.environ.get("SOAK_HISTORIES", "30"))


def bind(replica: Replica, uid: str, node: str) -> str:
    return asyncio.run(replica.committer.bind(uid, node)).refused


def filter_for(replica: Replica, store: MemoryStore, uid: str) -> ExtenderFilterResult:
    args = ExtenderArgs(pod=msgspec.to_builtins(store.pods[uid]), names=NODES)
    cluster = RealCluster(replica.live, replica.committer)
    return asyncio.run(filter_nodes(cluster, Journal(DecisionHistory()), args))


def test_deciding_and_reserving_is_one_write() -> None:
    store = MemoryStore(Random(1))
    replica = Replica(store)

    made = reserve(replica)

    assert isinstance(made, Reserved)
    assert (made.token, made.owner, made.node, made.until) == (TOKEN, "ns/p1", "n1", 1_600.0)
    assert [(share.uuid, share.mib) for share in made.gpus] == [("GPU-n1", 20_000)]
    assert (promised(store, "n1"), store.writes) == (20_000, 1)


def test_a_reservation_holds_memory_against_every_other_pod() -> None:
    store = MemoryStore(Random(2))
    store.create_pod(gpu_pod(1))
    store.create_pod(gpu_pod(2, tokens=OTHER))
    replica = Replica(store)
    reserve(replica, 32_000)

    for uid in ("uid-1", "uid-2"):
        assert "InsufficientVram" in bind(replica, uid, "n1")
        assert filter_for(replica, store, uid).node_names == ["n2"]


def test_its_owners_pod_takes_it_over_in_the_write_that_stores_the_pods_claim() -> None:
    store = MemoryStore(Random(3))
    store.create_pod(gpu_pod(1, 30_000, tokens=TOKEN))
    replica = Replica(store)
    reserve(replica, 32_000)

    assert filter_for(replica, store, "uid-1").node_names == ["n1"]
    assert bind(replica, "uid-1", "n1") == ""
    assert [claim.pod_uid for claim in store.ledgers["n1"].claims] == ["uid-1"]
    assert (promised(store, "n1"), store.writes) == (30_000, 3)
    assert claims_in(replica.live) == {("uid-1", "GPU-n1", 30_000)}
    check_books(store)


def test_a_pod_may_ask_for_more_than_was_reserved_where_that_is_free() -> None:
    store = MemoryStore(Random(4))
    store.create_pod(gpu_pod(1, 30_000, tokens=TOKEN))
    replica = Replica(store)
    reserve(replica, 8_000)

    assert bind(replica, "uid-1", "n1") == ""
    assert promised(store, "n1") == 30_000


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("other-service", TOKEN), ("p1", OTHER)],
    ids=["of another owner", "with another token"],
)
def test_who_is_not_its_owner_or_does_not_know_the_token_gets_nothing_of_it(name: str, tokens: str) -> None:
    store = MemoryStore(Random(5))
    store.create_pod(gpu_pod(1, 30_000, tokens=tokens))
    replica = Replica(store)
    reserve(replica, 32_000, name=name)

    assert "InsufficientVram" in bind(replica, "uid-1", "n1")
    assert filter_for(replica, store, "uid-1").node_names == ["n2"]


def test_a_pod_in_another_namespace_gets_nothing_of_it_whatever_it_shows() -> None:
    store = MemoryStore(Random(6))
    pod = gpu_pod(1, 30_000, tokens=TOKEN)
    store.create_pod(
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="thief"))
    )
    replica = Replica(store)
    reserve(replica, 32_000)

    assert "InsufficientVram" in bind(replica, "uid-1", "n1")


def test_the_ledger_shows_who_owns_a_reservation_and_nothing_to_take_it_with() -> None:
    store = MemoryStore(Random(7))
    reserve(Replica(store))

    stored = encode_ledger(store.ledgers["n1"])

    assert TOKEN not in str(stored)
    assert stored["spec"]["claims"]["GPU-n1"][0] == {  # type: ignore[index]
        "podUID": seal_of(TOKEN),
        "pod": "ns/p1",
        "mib": 20_000,
        "epoch": 1,
        "until": "1970-01-01T00:26:40Z",
    }
    assert decode_ledger(stored).claims == store.ledgers["n1"].claims


def test_it_ends_by_itself_when_its_time_is_over_and_not_before() -> None:
    store = MemoryStore(Random(8))
    replica = Replica(store)
    reserve(replica, ttl=30)

    replica.now += 29.0
    asyncio.run(replica.committer.reap())
    assert promised(store, "n1") == 20_000
    replica.now += 1.0
    asyncio.run(replica.committer.reap())

    assert (promised(store, "n1"), claims_in(replica.live)) == (0, set())


def test_a_pod_that_comes_too_late_takes_nothing_over() -> None:
    store = MemoryStore(Random(9))
    store.create_pod(gpu_pod(1, 30_000, tokens=TOKEN))
    replica = Replica(store)
    reserve(replica, 32_000, ttl=30)
    replica.now += 31.0

    assert "InsufficientVram" in bind(replica, "uid-1", "n1")


def test_who_knows_the_token_ends_it() -> None:
    store = MemoryStore(Random(10))
    replica = Replica(store)
    reserve(replica)

    assert asyncio.run(desk_of(replica).end(OTHER)) is False
    assert asyncio.run(desk_of(replica).end(TOKEN)) is True
    assert asyncio.run(desk_of(replica).end(TOKEN)) is False
    assert (promised(store, "n1"), desk_of(replica).list_all()) == (0, [])


def test_another_leader_keeps_it() -> None:
    store = MemoryStore(Random(11))
    store.create_pod(gpu_pod(1, 30_000, tokens=TOKEN))
    reserve(Replica(store), 32_000)
    heir = Replica(store, epoch=2)
    heir.now += 300.0

    asyncio.run(heir.committer.reap())

    (told,) = desk_of(heir).list_all()
    assert (told.owner, told.node, told.token, told.until) == ("ns/p1", "n1", None, 1_600.0)
    assert bind(heir, "uid-1", "n1") == ""


def test_asking_again_with_the_same_token_reserves_nothing_more() -> None:
    store = MemoryStore(Random(12))
    replica = Replica(store)

    first, second = reserve(replica), reserve(replica)

    assert first == second
    assert promised(store, "n1") + promised(store, "n2") == 20_000


def test_a_follower_names_the_leader() -> None:
    store = MemoryStore(Random(13))
    replica = Replica(store)
    replica.epoch = None

    refused = reserve(replica)

    assert refused == NotDone(
        "this replica does not lead, vramline-7_4711 does; ask there", "vramline-7_4711"
    )
    assert asyncio.run(desk_of(replica).end(TOKEN)) == refused
    assert store.writes == 0


def test_what_fits_nowhere_is_refused_with_the_reasons() -> None:
    store = MemoryStore(Random(14))
    replica = Replica(store)

    refused = reserve(replica, 40_000)

    assert isinstance(refused, NoRoom)
    assert refused.explanation.reason is Reason.GPU_TOO_SMALL
    assert {node.node for node in refused.explanation.nodes} == set(NODES)


def test_a_hundred_at_once_for_what_eight_can_have_leave_exactly_eight() -> None:
    store = MemoryStore(Random(15))
    replica = Replica(store)
    wishes = [
        read_wish({"owner": {"namespace": "ns", "name": f"p{number}"}, "ask": {"mib": 8_000}})
        for number in range(100)
    ]

    async def reserve_all() -> list[Reserved | NoRoom | NotDone]:
        return await asyncio.gather(*(desk_of(replica).reserve(wish) for wish in wishes))

    made = [each for each in asyncio.run(reserve_all()) if isinstance(each, Reserved)]

    assert len(made) == 8
    assert [promised(store, node) for node in NODES] == [32_000, 32_000]


def test_a_pod_that_another_scheduler_placed_ends_what_was_reserved_for_it() -> None:
    store = MemoryStore(Random(16))
    replica = Replica(store)
    reserve(replica)
    pod = gpu_pod(1, 20_000, tokens=TOKEN)
    assert pod.spec is not None
    replica.live.set_pod(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1")))

    asyncio.run(replica.committer.reap())

    assert promised(store, "n1") == 0


def test_two_pods_of_a_service_take_over_one_each() -> None:
    store = MemoryStore(Random(17))
    for number, name in ((1, "svc-leader"), (2, "svc-worker")):
        pod = gpu_pod(number, 16_000, tokens=f"{TOKEN},{OTHER}")
        named = msgspec.structs.replace(pod.metadata, name=name)
        store.create_pod(msgspec.structs.replace(pod, metadata=named))
    replica = Replica(store)
    for token in (TOKEN, OTHER):
        reserve(replica, 16_000, token=token, name="svc")
    assert promised(store, "n1") == 32_000

    assert bind(replica, "uid-1", "n1") == ""
    store.deliver(replica.live)
    asyncio.run(replica.committer.reap())
    assert promised(store, "n1") == 32_000
    assert bind(replica, "uid-2", "n1") == ""

    assert {claim.pod_uid for claim in store.ledgers["n1"].claims} == {"uid-1", "uid-2"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ttlSeconds": 0}, "ttlSeconds"),
        ({"ttlSeconds": 3_601}, "ttlSeconds"),
        ({"token": "guess"}, "token"),
        ({"owner": {"namespace": "ns", "name": "A B"}}, "owner.name"),
        ({"ask": None}, "says not what is asked for"),
        ({"pod": {"metadata": {}, "spec": {"containers": []}}}, "asks twice"),
        ({"ask": None, "pod": {"metadata": {}, "spec": {"containers": []}}}, "asks for no GPU"),
        ({"surprise": 1}, "surprise"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_wrong_wish_is_refused_by_the_field(change: dict[str, object], complaint: str) -> None:
    wish = {"owner": {"namespace": "ns", "name": "svc"}, "ask": {"mib": 8_000}, **change}

    with pytest.raises(RequestError, match=complaint):
        read_wish(wish)


def test_a_pod_to_come_may_be_given_as_a_manifest() -> None:
    pod = {
        "metadata": {"annotations": {keys.VRAM: "8Gi", keys.GPUS: "2"}},
        "spec": {"nodeSelector": {"zone": "b"}, "containers": [{"name": "c"}]},
    }

    wish = read_wish({"owner": {"namespace": "ns", "name": "svc"}, "pod": pod})

    assert (wish.ask.gpus, wish.ask.pod, wish.pod.host.node_selector) == (2, "ns/svc", {"zone": "b"})


def test_admission_refuses_a_pod_that_names_no_token_without_repeating_it() -> None:
    pod = msgspec.to_builtins(gpu_pod(1, tokens="my-secret"))

    refused = plan_admission(pod, operation="CREATE", options=AdmissionOptions())

    assert isinstance(refused, Refused)
    assert "annotation vramline.io/reservation: names no reservation; accepted: tokens" in refused.message
    assert "my-secret" not in refused.message


def test_nonsense_that_a_tenant_writes_on_a_running_pod_harms_nobody() -> None:
    store = MemoryStore(Random(18))
    store.create_pod(gpu_pod(1))
    store.create_pod(gpu_pod(2))
    replica = Replica(store)
    bind(replica, "uid-1", "n1")
    pod = store.pods["uid-1"]
    annotations = {**(pod.metadata.annotations or {}), keys.RESERVATION: "nonsense"}
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations, resource_version="99")

    replica.live.set_pod(msgspec.structs.replace(pod, metadata=meta))

    assert replica.live.pods["uid-1"].advances == ()
    assert bind(replica, "uid-2", "n1") == ""


# ── random histories ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("faults", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("crashes", [0.0, 0.05])
def test_any_interleaving_of_reservations_pods_and_leaders_keeps_the_books(
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
    asyncio.run(history.settle())
    bound = {uid for uid, pod in history.store.pods.items() if pod.spec is not None and pod.spec.node_name}
    kept = {claim.pod_uid for ledger in history.store.ledgers.values() for claim in ledger.claims}

    assert kept == bound
    check_books(history.store)


def token_of(number: int) -> str:
    return f"{number:032x}"


class History:
    """Two leaders, lagging watches, lost answers; pods with tokens and without; reservations that end."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.store = MemoryStore(random)
        self.clock = 0.0
        for number in range(12):
            tokens = token_of(number) if number % 2 else ""
            self.store.create_pod(
                gpu_pod(number, random.choice([500, 8_000, 20_000, PROMISE]), tokens=tokens)
            )
        self.replicas = [Replica(self.store, epoch=1), Replica(self.store, epoch=2)]

    async def live(self) -> None:
        tasks = []
        for _ in range(40):
            step = self.random.choice([self.bind, self.bind, self.reserve, self.end, self.reap])
            tasks.append(asyncio.create_task(step()))
            await asyncio.sleep(0)
            self.disturb()
            check_books(self.store)
        await asyncio.gather(*tasks)

    async def bind(self) -> None:
        replica, number = self.random.choice(self.replicas), self.random.randrange(12)
        with suppress(Crash):
            await replica.committer.recall(f"uid-{number}")  # the pod is filtered
            await replica.committer.bind(f"uid-{number}", self.random.choice(NODES))
        check_books(self.store)

    async def reserve(self) -> None:
        replica, number = self.random.choice(self.replicas), self.random.randrange(12)
        wish = read_wish(
            {
                "owner": {"namespace": "ns", "name": f"p{number}"},
                "ask": {"mib": self.random.choice([500, 8_000, 20_000, PROMISE])},
                "ttlSeconds": self.random.choice([1, 5, 600]),
                "token": token_of(number),
            }
        )
        with suppress(Crash):
            await desk_of(replica).reserve(wish)
        check_books(self.store)

    async def end(self) -> None:
        with suppress(Crash):
            await desk_of(self.random.choice(self.replicas)).end(token_of(self.random.randrange(12)))
        check_books(self.store)

    async def reap(self) -> None:
        with suppress(Crash):
            await self.random.choice(self.replicas).committer.reap()
        check_books(self.store)

    def disturb(self) -> None:
        """A pod goes, a late binding lands, a watch catches up a little, time passes."""
        late = self.store.on_their_way
        if self.store.pods and self.random.random() < 0.1:
            self.store.delete_pod(self.random.choice(sorted(self.store.pods)))
        if late and self.random.random() < 0.3:
            self.store.land(late.pop(self.random.randrange(len(late))))
        for replica in self.replicas:
            replica.now += self.random.choice([0.0, 0.0, 1.0])
        self.store.deliver(self.random.choice(self.replicas).live, self.random.randrange(4))

    async def settle(self) -> None:
        """A fresh leader lets everything end that has an end."""
        heir = Replica(self.store, epoch=3)
        for _ in range(3):
            await heir.committer.reap()
            self.store.deliver(heir.live)
            heir.now += 601.0
