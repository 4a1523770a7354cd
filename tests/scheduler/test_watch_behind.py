"""kube-scheduler may see a pod before our own watch tells of it: no reason to refuse its bind."""

import asyncio
from random import Random

import pytest

from scheduler.memory_store import MemoryStore
from scheduler.replicas import Replica, claims_in, gpu_pod
from vramline.explain.history import History
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.journal import Journal
from vramline.scheduler.verbs import bind_pod
from vramline.wire.extender_v1 import ExtenderBindingArgs


def bind(replica: Replica, uid: str) -> str:
    args = ExtenderBindingArgs(pod_name="p1", pod_namespace="ns", pod_uid=uid, node="n1")
    cluster = RealCluster(replica.live, replica.committer)
    return asyncio.run(bind_pod(cluster, Journal(History()), args)).error


def test_a_pod_that_the_watch_has_not_told_of_is_read_and_bound() -> None:
    store = MemoryStore(Random(1))
    replica = Replica(store)
    store.create_pod(gpu_pod(1))
    assert "uid-1" not in replica.live.pods

    assert bind(replica, "uid-1") == ""
    assert store.bound_to["uid-1"] == "n1"
    assert claims_in(replica.live) == {("uid-1", "GPU-n1", 8_000)}


@pytest.mark.parametrize("is_there", [True, False], ids=["another pod of that name", "no pod"])
def test_a_pod_that_is_not_there_either_is_refused(is_there: bool) -> None:
    store = MemoryStore(Random(1))
    replica = Replica(store)
    if is_there:
        store.create_pod(gpu_pod(1))

    assert bind(replica, "uid-9") == "no pod ns/p1 with UID uid-9"
