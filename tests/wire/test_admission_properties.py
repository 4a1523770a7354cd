"""What holds for every pod that admission is asked about."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from json_patch import apply_patch
from vramline.wire import keys
from vramline.wire.admission import (
    AdmissionOptions,
    Admitted,
    Backend,
    Refused,
    SchedulerNamePolicy,
    plan_admission,
)
from vramline.wire.asks import read_ask, read_spelled_ask
from vramline.wire.kubernetes import PodObject

Document = dict[str, Any]

SEAL = '{"gpus":1,"size":{"type":"mib","mib":8000}}'
ENTRY = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['vramline.io/visible-devices']"}
    },
}
AMOUNTS = st.sampled_from([0, 1, 2, 50, 100, 8000, "1", "8k", "50", "x", -1, 1.5, None])
RESOURCES = st.dictionaries(
    st.sampled_from(
        [
            "cpu",
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/gpumem",
            "nvidia.com/gpumem-percentage",
            "nvidia.com/gpucores",
            "nvidia.com/priority",
            "vramline.io/managed",
        ]
    ),
    AMOUNTS,
    max_size=3,
)
ENV = st.lists(
    st.sampled_from([ENTRY, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A"}]), max_size=3
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b"])},
        optional={
            "resources": st.none()
            | st.fixed_dictionaries({}, optional={"limits": RESOURCES, "requests": RESOURCES}),
            "env": ENV,
            "restartPolicy": st.just("Always"),
        },
    ),
    min_size=1,
    max_size=3,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            *(
                "vramline.io/vram",
                "vramline.io/gpus",
                "gpu-memory",
                "gpu-fraction",
                "gpu-fraction-num-devices",
            ),
            *("nvidia.com/use-gputype", "vramline.io/realtime-check", keys.ASK, keys.ALLOCATION, "other"),
            "nvidia.com/container.a.gpu-memory.request",
        ]
    ),
    st.sampled_from(["8000", "8Gi", "0.5", "2", "strict", SEAL, "", "{}"]),
    max_size=2,
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": st.just("p")}, optional={"annotations": ANNOTATIONS}),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS,
                "schedulerName": st.sampled_from(["", "vramline", "other"]),
                "nodeName": st.sampled_from(["", "", "n1"]),
            },
        ),
    }
)
OPTIONS = st.builds(
    AdmissionOptions,
    backend=st.sampled_from(Backend),
    scheduler_name_policy=st.sampled_from(SchedulerNamePolicy),
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PARTS = ["metadata", "spec", "containers", "initContainers", "env", "resources", "annotations", "limits"]


@st.composite
def spoiled(draw: st.DrawFn) -> Document:
    """A pod in which one thing was replaced by junk."""
    pod: Document = draw(PODS)
    parent: Any = pod
    for _ in range(draw(st.integers(0, 4))):
        children = list(parent.values()) if isinstance(parent, dict) else parent
        below = [child for child in children if isinstance(child, dict | list) and child]
        if not below:
            break
        parent = draw(st.sampled_from(below))
    if isinstance(parent, list):
        parent[draw(st.integers(0, len(parent) - 1))] = draw(JUNK)
    else:
        parent[draw(st.sampled_from([*parent, *PARTS]))] = draw(JUNK)
    return pod


@given(spoiled(), st.sampled_from(["CREATE", "UPDATE"]), OPTIONS)
def test_planning_answers_whatever_is_sent(pod: Document, operation: str, options: AdmissionOptions) -> None:
    outcome = plan_admission(pod, operation=operation, options=options, old_pod=pod)

    assert isinstance(outcome, Admitted | Refused)
    if isinstance(outcome, Refused):
        assert "\n" not in outcome.message


@given(PODS, OPTIONS)
def test_planning_twice_adds_nothing(pod: Document, options: AdmissionOptions) -> None:
    outcome = plan_admission(pod, operation="CREATE", options=options)
    if isinstance(outcome, Refused):
        return
    stored = apply_patch(pod, outcome.patch)

    again = plan_admission(stored, operation="CREATE", options=options)

    assert isinstance(again, Admitted)
    assert again.patch == ()


@given(PODS, OPTIONS)
def test_the_seal_says_what_was_spelled(pod: Document, options: AdmissionOptions) -> None:
    outcome = plan_admission(pod, operation="CREATE", options=options)
    if (
        isinstance(outcome, Refused)
        or not outcome.patch
        or keys.ASK in pod["metadata"].get("annotations", {})
    ):
        return

    stored = apply_patch(pod, outcome.patch)
    assert read_ask(msgspec.convert(stored, PodObject)) == read_spelled_ask(msgspec.convert(pod, PodObject))


@given(PODS, OPTIONS)
def test_whatever_is_stored_changed_has_one_choice_of_cards_in_every_container(
    pod: Document, options: AdmissionOptions
) -> None:
    outcome = plan_admission(pod, operation="CREATE", options=options)
    if isinstance(outcome, Refused) or not outcome.patch:
        return
    spec = apply_patch(pod, outcome.patch)["spec"]

    for each in (*spec.get("initContainers", ()), *spec["containers"]):
        assert [entry for entry in each["env"] if entry["name"] == ENTRY["name"]] == [ENTRY]
