"""Where waiting pods would go, planned on a copy of the fleet."""

import msgspec

from kubernetes_builders import pod_object
from scheduler.hints import World
from vramline.model.ledger import Reservation
from vramline.scheduler.foresight import Foresight
from vramline.wire import keys


def test_foresight_says_when_a_plan_no_longer_fits() -> None:
    world = World(nodes=1)
    pods = [world.live.pods[world.add(number)] for number in range(5)]
    first = Foresight(world.live)
    plans = [first.place(pod) for pod in pods]

    assert [plan is not None for plan in plans] == [True, True, True, True, False]
    again = Foresight(world.live)
    kept = [again.keep(pod, plan) for pod, plan in zip(pods, plans, strict=True) if plan is not None]
    assert kept == [True] * 4
    assert plans[0] is not None
    extra = msgspec.structs.replace(plans[0].claims[0], pod_uid="x")
    assert not again.keep(pods[0], Reservation(node="n0", claims=(extra,)))
    assert not again.keep(pods[0], Reservation(node="gone", claims=(extra,)))


def test_foresight_counts_cpu_and_places_of_the_host() -> None:
    world = World(nodes=2, allocatable={"cpu": "4", "pods": "10"})
    needs = {"name": "main", "resources": {"requests": {"cpu": "3"}}}
    pods = []
    for number in range(3):
        pod = pod_object(
            needs, annotations={keys.VRAM: "100"}, meta={"uid": f"u{number}", "resourceVersion": "1"}
        )
        world.live.set_pod(pod)
        pods.append(world.live.pods[f"u{number}"])
    ahead = Foresight(world.live)

    nodes = [plan.node if plan is not None else None for plan in map(ahead.place, pods)]

    assert nodes == ["n0", "n1", None]
