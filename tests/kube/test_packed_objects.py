"""What is read in one process is the same in another."""

import msgspec
import pytest

from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import pod_objects
from vramline.kube.objects import POD_SIGHTINGS, Stored, read_line
from vramline.kube.packed_pods import pack_pods, unpack_pods
from vramline.wire import keys

PODS = list(pod_objects(Population(PopulationShape(nodes=3, pods=20, waiting=40))))
for number, pod in enumerate(PODS):
    pod["metadata"]["resourceVersion"] = str(number + 1)


def line(document: object, what: str = "ADDED") -> bytes:
    return msgspec.json.encode({"type": what, "object": document})


def test_pods_that_run_and_pods_that_wait_come_out_as_they_were_read() -> None:
    texts = [line(pod, what) for pod in PODS for what in ("ADDED", "MODIFIED", "DELETED")]

    assert unpack_pods(pack_pods(b"\n".join(texts))) == [read_line(POD_SIGHTINGS, text) for text in texts]


def test_pods_of_one_template_share_what_they_need_of_a_host() -> None:
    found = unpack_pods(pack_pods(b"\n".join(map(line, PODS[:2]))))
    items = [each.object for each in found if each is not None and isinstance(each.object, Stored)]
    one, other = (each.value.pod for each in items)

    assert one is not None
    assert other is not None
    assert one.host is other.host


@pytest.mark.parametrize(
    "text",
    [
        line({"metadata": {"resourceVersion": "7"}}, "BOOKMARK"),
        line({"code": 410}, "ERROR"),
        line({**PODS[0], "spec": 7}),
        line({**PODS[0], "status": {"phase": "Sleeping"}}),
        line({**PODS[0], "metadata": {**PODS[0]["metadata"], "annotations": {keys.RESERVES: "x"}}}),
    ],
    ids=["bookmark", "error", "not-a-pod", "unreadable", "reservation-pod"],
)
def test_a_line_of_another_kind_is_left_to_the_receiver(text: bytes) -> None:
    found = unpack_pods(pack_pods(b"\n".join([line(PODS[0]), text, line(PODS[1])])))

    assert found == [
        read_line(POD_SIGHTINGS, line(PODS[0])),
        None,
        read_line(POD_SIGHTINGS, line(PODS[1])),
    ]
