"""Any interleaving of two leaders, kubelets, strangers, faults, kills, deletions and reboots converges.

Always: no card is over-promised, nothing but reservations is ended, and where one leader is alone no card of
ours is ever in kubelet's hands. In the end: every card of ours is held or was given to a stranger (where
somebody ended its reservation), nothing else is held, every bind has its end, and no pod was lost.
"""

import asyncio
import os
from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from binder.memory_world import CARD_MIB, NODES, Replica, World, has_ended, shared_pod, stranger, whole_pod
from scheduler.memory_store import Crash
from vramline.binder.books import claimed_on, situation_of
from vramline.binder.cover import held_cards
from vramline.wire import keys
from vramline.wire.bind_request_v1alpha1 import BindPhase

HISTORIES = int(os.environ.get("SOAK_HISTORIES", "15"))
PROMISE = CARD_MIB - 100
PODS = 8


class History:
    """What befalls a cluster."""

    def __init__(
        self, random: Random, *, faults: float, crashes: float, leaders: int, sabotage: bool
    ) -> None:
        self.random = random
        self.world = World(random)
        self.world.fault_rate, self.world.crash_rate = faults, crashes
        self.sabotage = sabotage
        self.keeps_hold = leaders == 1 and not sabotage
        self.strangers = 0
        for number in range(PODS):
            self.world.create_pod(shared_pod(number, random.choice([4_000, 12_000, PROMISE])))
        for number in range(2):
            self.world.create_pod(whole_pod(number, gpus=random.choice([1, 1, 2])))
        self.replicas = [Replica(self.world, epoch=number + 1, within_s=0.3) for number in range(leaders)]

    async def live(self) -> None:
        """Thirty things are begun; they get in each other's way."""
        tasks = []
        for _ in range(30):
            tasks.append(asyncio.create_task(self.attempt()))
            await asyncio.sleep(0)
            self.disturb()
            self.check()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            self.world.kubelets_act(3)
            self.hear()
        await asyncio.gather(*tasks)

    async def attempt(self) -> None:
        """Bind something, or look after what is there."""
        replica = self.random.choice(self.replicas)
        with suppress(Crash):
            if self.random.random() < 0.3:
                await replica.keeper.round()
                await asyncio.gather(*replica.keeper._resuming.values(), return_exceptions=True)
                return
            unbound = [uid for uid, pod in self.world.pods.items() if pod.spec and not pod.spec.node_name]
            if unbound:
                uid = self.random.choice(sorted(unbound))
                await replica.committer.recall(uid)
                await replica.committer.bind(uid, self.random.choice(sorted(NODES)))

    def disturb(self) -> None:
        chance = self.random.random()
        if chance < 0.1:
            self.strange()
        elif chance < 0.2:
            ours = [uid for uid in self.world.pods if not uid.startswith("uid-r")]
            if ours:
                self.world.delete_pod(self.random.choice(sorted(ours)))
        elif chance < 0.3 and self.sabotage:
            self.spoil()
        late = self.world.on_their_way
        if late and self.random.random() < 0.3:
            self.world.land(late.pop())
        if self.random.random() < 0.6:
            self.world.kubelets_act(self.random.randrange(1, 6))
        self.hear()

    def strange(self) -> None:
        """A pod that we do not place comes, where the number of devices allows it."""
        node = self.random.choice(sorted(NODES))
        asking = [
            pod
            for uid, pod in self.world.pods.items()
            if pod.spec and pod.spec.node_name == node and uid.startswith(("uid-r", "uid-s"))
        ]
        if len(asking) < NODES[node]:
            self.strangers += 1
            self.world.create_pod(stranger(self.strangers, node))

    def spoil(self) -> None:
        """Somebody deletes a reservation, or a node loses its memory."""
        there = self.world.reservations()
        if there and self.random.random() < 0.7:
            self.world.delete_pod(self.random.choice(there).metadata.uid or "")
        else:
            self.world.reboot(self.random.choice(sorted(NODES)))

    def hear(self) -> None:
        for replica in self.replicas:
            if self.random.random() < 0.7:
                replica.hear(self.random.randrange(1, 5))

    def check(self) -> None:
        """Check what must never be so, not even for a moment."""
        for node in NODES:
            ledger = self.world.ledgers.get(node)
            promised: dict[str, int] = {}
            for claim in ledger.claims if ledger else ():
                if self.world.bound_to.get(claim.pod_uid, node) == node:
                    promised[claim.gpu] = promised.get(claim.gpu, 0) + claim.mib
            assert all(mib <= PROMISE for mib in promised.values())
        assert all(name.startswith("gpu-reservation-") for name in self.world.ended)
        if self.keeps_hold:
            in_our_hands = {card for uid, card in self.world.given.items() if uid.startswith("uid-r")}
            assert cards_in_use(self.world) <= in_our_hands

    async def settle(self) -> Replica:
        """The dust settles: no more faults, one leader."""
        for binding in self.world.on_their_way:
            self.world.land(binding)
        self.world.fault_rate = self.world.crash_rate = 0.0
        heir = Replica(self.world, epoch=3)
        for _ in range(8):
            heir.hear()
            await heir.committer.reap()
            await heir.keep(rounds=8)
            heir.keeper._pauses.clear()
            heir.now += 61.0
            self.check()
        return heir


def cards_in_use(world: World) -> set[str]:
    """Return what the pods that we bound were told to use."""
    bound = (pod for pod in world.pods.values() if not has_ended(pod) and pod.spec and pod.spec.node_name)
    told = ((pod.metadata.annotations or {}).get(keys.VISIBLE_DEVICES, "") for pod in bound)
    return {card for cards in told if cards for card in cards.split(",")}


def live_through(
    random: Random, *, faults: float, crashes: float, leaders: int = 2, sabotage: bool = False
) -> tuple[History, Replica]:
    history = History(random, faults=faults, crashes=crashes, leaders=leaders, sabotage=sabotage)
    before = set(history.world.pods)

    async def tell() -> Replica:
        await history.live()
        return await history.settle()

    heir = asyncio.run(tell())
    assert before
    return history, heir


def check_end(history: History, heir: Replica) -> None:
    world = history.world
    for name in NODES:
        node = heir.live.fleet.node(name)
        assert node is not None
        situation = situation_of(heir.live, heir.parts.holds, node)
        claimed = claimed_on(heir.live, node)
        held = held_cards(situation)
        strangers = {card for uid, card in world.given.items() if uid.startswith("uid-s")}
        unheld = claimed.used - held.keys()
        assert unheld <= (set() if history.keeps_hold else strangers), (name, unheld)
        if not unheld:
            leaked = held.keys() - claimed.any
            assert not leaked, (name, leaked)
            assert len(situation.reservations) == len(held), situation.reservations
    for stored in world.requests.values():
        pod = world.pods.get(stored.request.pod_uid)
        if pod is not None and pod.spec is not None and pod.spec.node_name and not has_ended(pod):
            assert stored.request.phase is BindPhase.SUCCEEDED
    for uid, pod in world.pods.items():
        ours = keys.ALLOCATION in (pod.metadata.annotations or {})
        if pod.spec and pod.spec.node_name and ours and not has_ended(pod):
            assert ("ns", pod.metadata.name) in world.requests, uid


@settings(max_examples=HISTORIES, deadline=None)
@given(
    seed=st.integers(0, 2**32), faults=st.sampled_from([0.0, 0.1, 0.3]), crashes=st.sampled_from([0.0, 0.03])
)
def test_every_history_converges(seed: int, faults: float, crashes: float) -> None:
    history, heir = live_through(Random(seed), faults=faults, crashes=crashes)

    check_end(history, heir)


@settings(max_examples=HISTORIES, deadline=None)
@given(
    seed=st.integers(0, 2**32), faults=st.sampled_from([0.0, 0.1, 0.3]), crashes=st.sampled_from([0.0, 0.03])
)
def test_one_leader_never_lets_go_of_a_card_in_use(seed: int, faults: float, crashes: float) -> None:
    history, heir = live_through(Random(seed), faults=faults, crashes=crashes, leaders=1)

    check_end(history, heir)


@settings(max_examples=HISTORIES, deadline=None)
@given(seed=st.integers(0, 2**32), crashes=st.sampled_from([0.0, 0.03]))
def test_every_history_converges_where_reservations_are_deleted_and_nodes_restart(
    seed: int, crashes: float
) -> None:
    history, heir = live_through(Random(seed), faults=0.1, crashes=crashes, sabotage=True)

    check_end(history, heir)
