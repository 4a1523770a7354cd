"""A snapshot of the living cluster, given to the simulator, is the same cluster."""

import msgspec
import pytest

from demo.test_life import World
from vramline.model.pod import PodPhase
from vramline.model.rules import Rules
from vramline.scheduler.snapshot import list_cases, take_snapshot, write_journal
from vramline.simulate.options import RunOptions
from vramline.simulate.replay import replay_snapshot
from vramline.simulate.run import Run, run_documents


def replay(world: World) -> Run:
    text = msgspec.json.encode(take_snapshot(world.life.cluster))
    return run_documents([("snapshot", msgspec.json.decode(text))], RunOptions(rules=Rules()))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_replay_has_the_same_figures_and_decides_the_same(seed: int) -> None:
    world = World(seed)
    cluster = world.life.cluster
    for _ in range(8):
        world.run(25)
        again = replay(world)
        waiting = [pod for pod in cluster.pods.values() if pod.phase is PodPhase.PENDING]
        bound_again = {outcome.pod.key for outcome in again.outcomes if outcome.status == "Bound"}

        assert again.problems == []
        assert again.cluster.now() == cluster.now()
        if not bound_again:
            for uuid in world.life.cards:
                assert again.cluster.fleet.account(uuid) == cluster.fleet.account(uuid)
        assert {pod.key for pod in waiting} >= bound_again


@pytest.mark.parametrize("seed", [1, 2])
def test_the_decisions_of_a_snapshot_come_out_the_same_to_the_last_bit(seed: int) -> None:
    world = World(seed)
    world.run(150)
    journal = write_journal(list_cases(world.life.history))
    text = msgspec.json.encode({**take_snapshot(world.life.cluster), "journal": journal})

    replay = replay_snapshot(text, subject="snapshot")

    outcomes = {each.then.outcome for each in replay.decisions}
    assert outcomes == {"Bound", "Pending"}
    assert len(replay.decisions) > 30
    assert [each.difference() for each in replay.decisions if not each.same] == []
    assert run_documents([("snapshot", msgspec.json.decode(text))], RunOptions(rules=Rules())).problems == []
