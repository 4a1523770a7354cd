"""What is read in one process is the same in another."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import node_objects, pod_objects
from vramline.kube.objects import NODES, POD_SIGHTINGS, Item, Stored, Unreadable, read_item
from vramline.kube.packed_objects import PACKED_NODES, PACKED_PODS
from vramline.wire import keys
from vramline.wire.kubernetes import NodeObject
from vramline.wire.pods import PodSighting

POPULATION = Population(PopulationShape(nodes=3, pods=20, waiting=40))
PODS = list(pod_objects(POPULATION))
for number, pod in enumerate(PODS):
    pod["metadata"]["resourceVersion"] = str(number + 1)
ODD = [
    {**PODS[0], "spec": 7},
    {**PODS[0], "status": {"phase": "Sleeping"}},
    {**PODS[0], "metadata": {**PODS[0]["metadata"], "annotations": {keys.RESERVES: "x"}}},
    {**PODS[0], "metadata": {**PODS[0]["metadata"], "annotations": {keys.VRAM: "much"}}},
    {**PODS[0], "metadata": {**PODS[0]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00.5Z"}},
]


def read_pods(documents: Iterable[object]) -> list[Item[PodSighting]]:
    return [read_item(POD_SIGHTINGS, msgspec.json.encode(each)) for each in documents]


def read_nodes(documents: Iterable[object]) -> list[Item[NodeObject]]:
    return [read_item(NODES, msgspec.json.encode(each)) for each in documents]


def test_pods_come_out_as_they_were_read() -> None:
    documents = [*PODS, *ODD]
    found = PACKED_PODS.unpack(PACKED_PODS.pack(read_pods(documents)))

    assert sorted(found, key=repr) == sorted(read_pods(documents), key=repr)
    assert [type(each) for each in found].count(Unreadable) == 1
    assert any(isinstance(each, Stored) and each.value.pod is None for each in found)
    assert any(isinstance(each, Stored) and each.value.reservation is not None for each in found)


def test_pods_of_one_template_share_what_they_need_of_a_host() -> None:
    found = PACKED_PODS.unpack(PACKED_PODS.pack(read_pods(PODS[:2])))
    one, other = (each.value.pod for each in found if isinstance(each, Stored))

    assert one is not None
    assert other is not None
    assert one.host is other.host


def test_nodes_come_out_as_they_were_read() -> None:
    documents = list(node_objects(POPULATION))
    for document in documents:
        document["metadata"]["resourceVersion"] = "7"
    odd = {"metadata": {"name": "odd", "resourceVersion": "8"}, "status": 1}
    found = PACKED_NODES.unpack(PACKED_NODES.pack(read_nodes([*documents, odd])))

    assert found == read_nodes([*documents, odd])
    assert isinstance(found[-1], Unreadable)


_WORDS = st.none() | st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"))


@given(st.lists(st.tuples(_WORDS, _WORDS), max_size=8))
def test_nodes_keep_their_own_labels_and_annotations(told: list[tuple[Any, Any]]) -> None:
    documents = [
        {"metadata": {"name": f"n{n}", "resourceVersion": "7", "labels": labels, "annotations": annotations}}
        for n, (labels, annotations) in enumerate(told)
    ]

    found = PACKED_NODES.unpack(PACKED_NODES.pack(read_nodes(documents)))

    assert found == read_nodes(documents)
    own = [item.value.metadata.labels for item in found if isinstance(item, Stored)]
    assert len(set(map(id, own))) == len(own) or None in own, "nobody changes the labels of another node"
