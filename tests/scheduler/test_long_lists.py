"""Long lists of names are answered as short ones are."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from scheduler.worlds import NOW, cluster_of, pod_body
from vramline.explain.history import History
from vramline.model.observation import Observation
from vramline.scheduler.journal import Journal
from vramline.scheduler.long_lists import LongLists
from vramline.scheduler.verbs import filter_nodes, prioritize_nodes
from vramline.simulate.cluster import EmbeddedCluster
from vramline.wire.extender_v1 import read_extender_args

NAMES = [f"node-{number:04d}.example.internal" for number in range(200)]


def seen(used: int) -> Observation:
    return builders.observation(used, at=NOW - 1)


def world(seed: int) -> EmbeddedCluster:
    """Nodes with one card each, of four sizes, some of them taken, some without cards."""
    chance = random.Random(seed)
    sizes = {name: chance.choice((4_000, 16_000, 32_600, 81_559)) for name in NAMES}
    without = set(chance.sample(NAMES, 20))
    cluster = cluster_of(
        *(
            builders.node(name)
            if name in without
            else builders.node(name, builders.gpu(f"GPU-{name}", sizes[name]))
            for name in NAMES
        )
    )
    for name in NAMES:
        if name not in without:
            cluster.fleet.observe(f"GPU-{name}", seen(chance.choice((0, 0, 3_000))))
            if chance.random() < 0.5:
                claim = builders.claim(sizes[name] // 2, f"ns/{name}", gpu=f"GPU-{name}")
                cluster.fleet.adopt([claim])
    return cluster


def body_of(pod: dict[str, Any], names: list[str]) -> bytes:
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from((500, 8_000, 30_000, 70_000, 200_000)), st.integers(90, 200))
def test_a_long_list_is_filtered_and_weighed_as_a_short_one(seed: int, mib: int, count: int) -> None:
    cluster = world(seed)
    names = random.Random(seed).sample(NAMES, count)
    body = body_of(pod_body(mib), names)
    quick, usual = (Journal(History()) for _ in range(2))

    filtered = asyncio.run(LongLists(cluster, quick).filter(body, None))
    weighed = LongLists(cluster, quick).prioritize(body)

    args = read_extender_args(body)
    assert filtered is not None
    assert bytes(filtered) == msgspec.json.encode(asyncio.run(filter_nodes(cluster, usual, args)))
    assert weighed is not None
    scores = {each["Host"]: each["Score"] for each in msgspec.json.decode(bytes(weighed))}
    assert scores == {each.host: each.score for each in prioritize_nodes(cluster, usual, args)}


@pytest.mark.parametrize(
    "body",
    [
        body_of(pod_body(8_000), [*NAMES, "stranger"]),
        body_of(pod_body(8_000), NAMES[:10]),
        body_of({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, NAMES),
        body_of({**pod_body(8_000), "spec": 7}, NAMES),
        b"nonsense",
    ],
    ids=["a node that is not known", "a short list", "no GPU", "a pod that cannot be read", "no JSON"],
)
def test_what_is_not_usual_is_left_to_others(body: bytes) -> None:
    assert asyncio.run(LongLists(world(1), Journal(History())).filter(body, None)) is None


def test_a_node_that_comes_or_leaves_is_known_or_not() -> None:
    cluster, names = world(3), NAMES[:150]
    lists = LongLists(cluster, Journal(History()))
    with_newcomer = body_of(pod_body(500), [*names, "newcomer"])

    before = asyncio.run(lists.filter(with_newcomer, None))
    cluster.fleet.set_node(builders.node("newcomer", builders.gpu("GPU-new")))
    joined = asyncio.run(lists.filter(with_newcomer, None))
    cluster.fleet.remove_node("newcomer")
    after = asyncio.run(lists.filter(with_newcomer, None))

    assert (before, after) == (None, None)
    assert joined is not None
    assert b'"newcomer"' in bytes(joined)
