"""The reservation pod's manifest, and what is read from such a pod."""

from typing import Any, cast

import msgspec
import pytest

from vramline.model.node import Taint
from vramline.wire import keys
from vramline.wire.asks import is_reservation_pod, read_ask
from vramline.wire.kubernetes import PodObject
from vramline.wire.reservation_pod import (
    HostMount,
    PlatformProfile,
    ReservationOptions,
    ReservationSite,
    build_reservation_pod,
    name_reservation,
    read_reservation,
)

CARD = "GPU-8d580ab0-5642-4fd8-8c19-b34e71f03415"
SITE = ReservationSite(node="n1", card=CARD)
OPTIONS = ReservationOptions(image="vramline:test")


def build(site: ReservationSite = SITE, profile: PlatformProfile | None = None) -> dict[str, Any]:
    return cast("dict[str, Any]", build_reservation_pod(site, profile or PlatformProfile(), OPTIONS))


def seen(document: dict[str, Any], **status: object) -> PodObject:
    return msgspec.convert(document | {"status": status}, PodObject)


def test_it_is_on_its_node_and_takes_exactly_one_device() -> None:
    spec = build()["spec"]

    assert spec["nodeName"] == "n1"
    (container,) = spec["containers"]
    assert container["resources"]["limits"][keys.GPU_COUNT] == "1"
    assert container["resources"]["requests"][keys.GPU_COUNT] == "1"


def test_a_renamed_device_is_asked_for_by_its_name() -> None:
    site = ReservationSite(node="n1", card=CARD, resource=keys.GPU_COUNT_SHARED)

    (container,) = build(site)["spec"]["containers"]

    assert container["resources"]["limits"][keys.GPU_COUNT_SHARED] == "1"
    assert keys.GPU_COUNT not in container["resources"]["limits"]


def test_without_a_profile_nothing_of_the_host_is_inside() -> None:
    spec = build()["spec"]

    assert {"volumes", "runtimeClassName"}.isdisjoint(spec)
    (container,) = spec["containers"]
    assert "volumeMounts" not in container
    assert [each["name"] for each in container["env"]] == ["POD_NAME", "POD_NAMESPACE"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsNonRoot"]


def test_a_profile_adds_its_environment_mounts_and_devices() -> None:
    profile = PlatformProfile(
        env={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        mounts=(HostMount(host_path="/usr/lib/nvidia", path="/usr/lib/nvidia"),),
        devices=("/dev/nvidia0",),
        runtime_class="nvidia",
    )

    spec = build(profile=profile)["spec"]

    (container,) = spec["containers"]
    assert container["env"][-1] == {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}
    assert container["volumeMounts"] == [
        {"name": "host-0", "mountPath": "/usr/lib/nvidia", "readOnly": True},
        {"name": "host-1", "mountPath": "/dev/nvidia0", "readOnly": False},
    ]
    assert [volume["hostPath"]["type"] for volume in spec["volumes"]] == ["Directory", "CharDevice"]
    assert spec["runtimeClassName"] == "nvidia"


def test_only_a_privileged_profile_makes_a_privileged_pod() -> None:
    spec = build(profile=PlatformProfile(privileged=True))["spec"]

    assert spec["containers"][0]["securityContext"]["privileged"]
    assert spec["securityContext"] == {"runAsUser": 0}, "whoever is not root may not open all of /dev"


def test_it_tolerates_the_taints_of_its_node_and_a_restart() -> None:
    site = ReservationSite(node="n1", card=CARD, taints=(Taint("gpus", "yes", "NoExecute"),))

    tolerated = build(site)["spec"]["tolerations"]

    assert {"key": "gpus", "operator": "Exists", "effect": "NoExecute"} in tolerated
    assert {each["key"] for each in tolerated} == {
        "gpus",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_the_name_tells_node_and_card_apart() -> None:
    names = {
        name_reservation("n1", "c1"),
        name_reservation("n1", "c2"),
        name_reservation("n2", "c1"),
        name_reservation("n1", "c1", 2),
        name_reservation("n", "1c1"),
    }

    assert len(names) == 5


@pytest.mark.parametrize("card", [CARD, "a-node.example.com/gpu-0"], ids=["a UUID", "a card without UUID"])
def test_other_tools_find_it_and_it_asks_for_no_memory(card: str) -> None:
    pod = seen(build(ReservationSite(node="n1", card=card)))

    assert (pod.metadata.labels or {})["app"] == "resource-reservation"
    assert "/" not in (pod.metadata.labels or {})[keys.KAI_GROUP_LABEL]
    assert is_reservation_pod(pod.metadata)
    assert read_ask(pod) is None


def test_what_was_built_is_read_back() -> None:
    document = build()
    document["metadata"] |= {"uid": "u1", "resourceVersion": "7"}
    document["metadata"]["annotations"][keys.RESERVED_GPU] = "GPU-other::3"

    read = read_reservation(seen(document, phase="Running"))

    assert read is not None
    assert (read.node, read.planned, read.card) == ("n1", CARD, "GPU-other")
    assert (read.uid, read.version, read.failure, read.ending) == ("u1", "7", "", False)


def test_a_rejected_pod_says_why() -> None:
    read = read_reservation(
        seen(build(), phase="Failed", reason="UnexpectedAdmissionError", message="none left")
    )

    assert read is not None
    assert read.failure == "UnexpectedAdmissionError: none left"


def test_a_pod_of_somebody_else_is_none() -> None:
    document = build()
    del document["metadata"]["annotations"]

    assert read_reservation(seen(document)) is None


def test_groups_and_annotations_of_a_platform_are_the_pods() -> None:
    pod = build(profile=PlatformProfile(groups=(44,), annotations={"example.com/devices": "nvmap"}))

    assert pod["spec"]["securityContext"]["supplementalGroups"] == [44]
    assert pod["metadata"]["annotations"] == {"example.com/devices": "nvmap", keys.RESERVES: CARD}


def test_its_last_words_are_what_kubelet_tells_of_its_end() -> None:
    (container,) = build()["spec"]["containers"]

    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


LAST_WORDS = (
    '2026-01-01T00:00:00.000Z "Looking for GPU device id for pod"\n'
    "error: unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND (libnvidia-ml.so.1 for aarch64): …\n"
)


@pytest.mark.parametrize("field", ["state", "lastState"])
def test_a_container_that_cannot_use_nvml_is_noticed_by_its_last_words(field: str) -> None:
    ended = {field: {"terminated": {"exitCode": 1, "message": LAST_WORDS}}}
    found = read_reservation(seen(build(), phase="Running", containerStatuses=[{"name": "reserve", **ended}]))

    assert found is not None
    assert found.failure.startswith("unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND")


@pytest.mark.parametrize("words", [None, "", "error: PATCH /api/v1/… : no connection", "Killed"])
def test_what_else_ends_a_container_is_tried_again(words: str | None) -> None:
    ended = {"lastState": {"terminated": {"exitCode": 1, "message": words}}}
    found = read_reservation(seen(build(), phase="Running", containerStatuses=[{"name": "reserve", **ended}]))

    assert found is not None
    assert found.failure == ""


def test_a_card_that_was_told_is_not_doubted_because_of_a_restart() -> None:
    pod = build()
    pod["metadata"]["annotations"][keys.RESERVED_GPU] = CARD
    ended = {"lastState": {"terminated": {"exitCode": 1, "message": LAST_WORDS}}}
    found = read_reservation(seen(pod, phase="Running", containerStatuses=[{"name": "reserve", **ended}]))

    assert found is not None
    assert (found.card, found.failure) == (CARD, "")
