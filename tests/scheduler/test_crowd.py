"""CPU that is left and asks that are usual, in step with what the API server tells, in any order."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ask, gpu, node
from vramline.model.fleet import Fleet
from vramline.model.node import HostRoom
from vramline.model.pod import HostNeeds, Pod, PodPhase
from vramline.scheduler.crowd import Crowd

NAMES = ("n1", "n2")


def pod(number: int, where: str | None, cpu: int, phase: PodPhase = PodPhase.RUNNING) -> Pod:
    return Pod(
        namespace="ns",
        name=f"p{number}",
        uid=f"uid-{number}",
        node=where,
        phase=phase if where else PodPhase.PENDING,
        host=HostNeeds(cpu_milli=cpu),
        ask=ask(1_000),
    )


EVENTS = st.one_of(
    st.builds(
        pod,
        st.integers(0, 4),
        st.sampled_from([None, *NAMES]),
        st.sampled_from([100, 500]),
        st.sampled_from([PodPhase.RUNNING, PodPhase.FINISHED]),
    ),
    st.integers(0, 4),
    st.sampled_from(NAMES),
)


@given(st.lists(EVENTS, max_size=40))
@settings(deadline=None)
def test_what_is_left_is_what_the_pods_there_leave_whatever_came_first(events: list[Pod | int | str]) -> None:
    fleet = Fleet()
    crowd = Crowd(fleet)
    pods: dict[str, Pod] = {}
    for event in events:
        if isinstance(event, Pod):
            pods[event.uid] = event
            crowd.note(event.uid, event)
        elif isinstance(event, int):
            pods.pop(f"uid-{event}", None)
            crowd.note(f"uid-{event}", None)
        else:
            machine = node(event, gpu(f"GPU-{event}"), host=HostRoom(cpu_milli=10_000))
            fleet.set_node(machine)
            crowd.set_node(machine)

    for name in NAMES:
        number = fleet.node_number(name)
        if number is None:
            continue
        taken = sum(
            each.host.cpu_milli
            for each in pods.values()
            if each.node == name and each.phase is not PodPhase.FINISHED
        )
        assert fleet.hosts is not None
        assert fleet.hosts.cpu_milli[number] == 10_000 - taken


def test_a_pod_that_changes_is_counted_once_among_what_is_asked_for() -> None:
    fleet = Fleet()
    crowd = Crowd(fleet)
    waiting = pod(1, None, 100)

    crowd.note(waiting.uid, waiting)
    crowd.note(waiting.uid, msgspec.structs.replace(waiting, node="n1", phase=PodPhase.RUNNING))

    assert list(fleet.mix.counts.values()) == [1]
