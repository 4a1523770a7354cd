import asyncio
import random
from collections import Counter

import pytest

import builders
from vramline.demo.cards import CardProcess, SimulatedCard
from vramline.demo.checks import check_cards
from vramline.demo.life import Happening, LivingCluster
from vramline.demo.machines import MAX_NODES, build_nodes
from vramline.errors import InvariantError, RequestError
from vramline.explain.history import History
from vramline.model.ask import RealtimeMode
from vramline.model.pod import PodPhase
from vramline.settings import Settings
from vramline.units import Mib


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """A living cluster and its clock."""

    def __init__(self, seed: int, nodes: int = 4, settings: Settings | None = None) -> None:
        self.clock = Clock()
        self.life = LivingCluster(
            build_nodes(nodes),
            dice=random.Random(seed),
            clock=self.clock,
            history=History(),
            settings=settings,
        )

    def run(self, ticks: int, step_s: float = 1.0) -> list[Happening]:
        """Let time pass; every tick checks the books and the memory law itself."""
        news = []
        for _ in range(ticks):
            self.clock.now += step_s
            news += self.life.tick()
        return news


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_the_cluster_lives_and_keeps_its_promises(seed: int) -> None:
    counts = Counter(happening.what for happening in World(seed).run(300))

    assert counts["bound"] > 20
    assert min(counts[what] for what in ("pending", "releasing", "released", "unmanaged")) > 0


@pytest.mark.parametrize("mode", list(RealtimeMode))
def test_every_mode_keeps_the_books(mode: RealtimeMode) -> None:
    assert World(7, settings=Settings(realtime_mode=mode)).run(200)


@pytest.mark.parametrize(("nodes", "step_s"), [(1, 1.0), (13, 1.0), (4, 0.1), (4, 37.0)])
def test_size_and_pace_do_not_matter(nodes: int, step_s: float) -> None:
    assert World(3, nodes).run(100, step_s)


def test_the_same_seed_tells_the_same_story() -> None:
    assert World(11).run(150) == World(11).run(150)


def test_another_seed_tells_another_one() -> None:
    assert World(11).run(50) != World(12).run(50)


def test_memory_is_never_bound_before_its_release_is_proved() -> None:
    """Between "releasing" and "released" the claims of a pod stay in the ledger."""
    world = World(5)
    leaving: set[str] = set()
    for _ in range(300):
        for happening in world.run(1):
            if happening.what == "releasing":
                leaving.add(happening.who)
            if happening.what == "released":
                leaving.discard(happening.who)
        held = {claim.pod for claim in world.life.cluster.fleet.ledger}
        assert leaving <= held


def test_every_attempt_is_in_the_history() -> None:
    world = World(1)
    news = world.run(60)

    recorded = {record.pod for record in world.life.history.all()}

    assert {happening.who for happening in news if happening.what in {"bound", "pending"}} <= recorded


def test_a_pod_that_somebody_else_bound_lives_on_like_the_others() -> None:
    world = World(2)
    cluster = world.life.cluster
    world.life._arrive(world.clock.now)
    (pod,) = cluster.pods.values()
    refusals = [asyncio.run(cluster.bind(pod.uid, node)).refused for node in ("n1", "n2", "n3", "n4")]
    assert "" in refusals

    world.run(5)

    assert cluster.pods[pod.uid].phase is PodPhase.RUNNING
    assert pod.uid not in world.life.queue


@pytest.mark.parametrize("count", [0, -1, MAX_NODES + 1])
def test_an_impossible_number_of_nodes_is_refused(count: int) -> None:
    with pytest.raises(RequestError, match="--nodes"):
        build_nodes(count)


def test_every_card_of_the_largest_demo_has_a_name_of_its_own() -> None:
    uuids = [gpu.uuid for node in build_nodes(MAX_NODES) for gpu in node.gpus]

    assert len(set(uuids)) == len(uuids)


# ── the checks themselves ────────────────────────────────────────────────────────────────────────────


def test_a_promise_too_many_is_noticed() -> None:
    fleet = builders.fleet_of(
        builders.node("n", builders.gpu("GPU-a", 10_000)), claims=[builders.claim(9_950)]
    )

    with pytest.raises(InvariantError, match="GPU-a of n: 9950 MiB promised"):
        check_cards(fleet, [SimulatedCard(builders.gpu("GPU-a", 10_000, node="n"))])


def test_a_wrong_figure_is_noticed() -> None:
    gpu = builders.gpu("GPU-a", 10_000)
    fleet = builders.fleet_of(builders.node("n", gpu), observations={"GPU-a": builders.observation(100)})
    truth = SimulatedCard(gpu, [CardProcess(1, Mib(4_000), None)])

    with pytest.raises(InvariantError, match="unmanaged 0, not 4000"):
        check_cards(fleet, [truth])


def test_a_card_that_nobody_looked_at_is_noticed() -> None:
    gpu = builders.gpu("GPU-a", 10_000)

    with pytest.raises(InvariantError, match="nobody looked"):
        check_cards(builders.fleet_of(builders.node("n", gpu)), [SimulatedCard(gpu)])
