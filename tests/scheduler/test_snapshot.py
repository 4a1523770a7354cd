import msgspec

import builders
from scheduler.worlds import NOW, Door, cluster_of, pending
from vramline.model.ask import ShareSize
from vramline.model.claim import ClaimState
from vramline.model.rules import Rules
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.options import RunOptions
from vramline.simulate.run import Run, run_documents


def replay(cluster: EmbeddedCluster) -> Run:
    """Give a snapshot to the simulator, as `vramline simulate -f -` does."""
    text = Door(cluster).get("/snapshot").content
    return run_documents([("snapshot", msgspec.json.decode(text))], RunOptions(rules=Rules()))


def living_cluster() -> EmbeddedCluster:
    cluster = cluster_of(
        builders.node("n1", builders.gpu("GPU-a", slots=100), advertised=100),
        builders.node("n2", builders.gpu("GPU-b", cordoned=True), builders.gpu("GPU-c"), advertised=2),
        GPU_a=builders.observation(6_000, builders.process(6_000), at=NOW - 1),
    )
    bound = pending(cluster, builders.ask(10_000), name="a-bound")
    cluster.place(bound.uid)
    running = pending(cluster, builders.ask(ShareSize(1, 4)), name="b-running")
    cluster.place(running.uid)
    cluster.start_pod(running.uid)
    leaving = pending(cluster, builders.ask(3_000), name="c-leaving")
    cluster.place(leaving.uid)
    cluster.start_pod(leaving.uid)
    cluster.delete_pod(leaving.uid)
    return cluster


def test_a_replayed_snapshot_has_the_same_books_and_figures() -> None:
    cluster = living_cluster()

    again = replay(cluster)

    assert again.problems == []
    assert again.cluster.now() == NOW
    for uuid in ("GPU-a", "GPU-b", "GPU-c"):
        assert again.cluster.fleet.account(uuid) == cluster.fleet.account(uuid)


def test_a_replayed_snapshot_decides_the_same() -> None:
    cluster = living_cluster()
    for name, mib in (("p1", 20_000), ("p2", 90_000), ("p3", 30_000)):
        pending(cluster, builders.ask(mib), name=name)

    fates = {outcome.pod.key: outcome for outcome in replay(cluster).outcomes}

    for name in ("p1", "p2", "p3"):
        outcome = cluster.place(builders.uid_of(f"ns/{name}"))
        same = fates[f"ns/{name}"]
        assert (same.status, same.node, same.gpus, same.reason, same.message) == (
            outcome.status,
            outcome.node,
            outcome.gpus,
            outcome.reason,
            outcome.message,
        )


def test_memory_of_a_pod_whose_object_is_gone_is_still_held_in_the_replay() -> None:
    cluster = cluster_of(
        builders.node("n1", builders.gpu("GPU-a")),
        GPU_a=builders.observation(4_000, builders.process(4_000, "ns/ended"), at=NOW - 1),
    )
    ended = builders.claim(
        5_000, "ns/ended", state=ClaimState.RELEASING, started_at=NOW - 50, ended_at=NOW - 2
    )
    cluster.fleet.adopt([ended])

    account = replay(cluster).cluster.fleet.account("GPU-a")

    assert (account.held, account.held_releasing) == (5_000, 5_000)
