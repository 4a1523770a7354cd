"""Malformed and contradictory asks: each one line that names pod, field, value and what is accepted."""

from typing import Any

import pytest

from kubernetes_builders import container, pod_object
from vramline.errors import RequestError
from vramline.wire.asks import read_ask

MIB = "accepted: a whole number of MiB, such as 8000"
VRAM = "accepted: MiB as 8000 or 8000Mi, GiB as 8Gi"
SHARE = "accepted: a decimal between 0 and 1 with at most 9 decimals, such as 0.25"
MEMORY = {"gpu-memory": "8000"}
KAI = "nvidia.com/container"


def refusal(*containers: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        read_ask(pod_object(*containers, **fields))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("Pod ns/p: ")
    return message.removeprefix("Pod ns/p: ")


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("gpu-memory", "8 GB", f"is not a whole number of MiB; {MIB}"),
        ("gpu-memory", "8Gi", "counts MiB and takes no unit; accepted: 8192 for 8Gi"),
        ("gpu-memory", "8000Mi", "counts MiB and takes no unit; accepted: 8000 for 8000Mi"),
        ("gpu-memory", "-8000", f"is not a whole number of MiB; {MIB}"),
        ("gpu-memory", "0", f"must be more than 0; {MIB}"),
        ("gpu-memory", "1e99", f"is not a whole number of MiB; {MIB}"),
        ("gpu-memory", "8000.0", f"is not a whole number of MiB; {MIB}"),
        ("gpu-memory", "", f"is not a whole number of MiB; {MIB}"),
        ("gpu-memory", "٨٠٠٠", f"is not a whole number of MiB; {MIB}"),
        ("gpu-memory", "9223372036854775808", f"is more than 2,147,483,647 MiB; {MIB}"),
        ("gpu-memory", "99999999999999999999999", f"is more than 2,147,483,647 MiB; {MIB}"),
        ("vramline.io/vram", "0", f"must be more than 0; {VRAM}"),
        ("vramline.io/vram", "0Gi", f"must be more than 0; {VRAM}"),
        ("vramline.io/vram", "8G", f"is not an amount of memory; {VRAM}"),
        ("vramline.io/vram", "8 Gi", f"is not an amount of memory; {VRAM}"),
        ("vramline.io/vram", "-1", f"is not an amount of memory; {VRAM}"),
        ("vramline.io/vram", "NaN", f"is not an amount of memory; {VRAM}"),
        ("vramline.io/vram", "8.5Gi", f"is not an amount of memory; {VRAM}"),
        ("vramline.io/vram", "9999999Gi", f"is more than 2,147,483,647 MiB; {VRAM}"),
        ("gpu-fraction", "0", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "0.000", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "-0.5", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "1", "is a whole GPU; accepted: nvidia.com/gpu: 1 among the limits"),
        ("gpu-fraction", "1.0", "is a whole GPU; accepted: nvidia.com/gpu: 1 among the limits"),
        (
            "gpu-fraction",
            "1.5",
            f"is more than one GPU; {SHARE}, with gpu-fraction-num-devices for several GPUs",
        ),
        ("gpu-fraction", "nan", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "inf", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "1.2e-10", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "0.1234567891", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "50%", f"is not a share of one GPU; {SHARE}"),
        ("gpu-fraction", "1/2", f"is not a share of one GPU; {SHARE}"),
    ],
)
def test_an_amount_in_an_annotation_is_refused(key: str, text: str, problem: str) -> None:
    assert refusal(annotations={key: text}) == f"annotation {key} = {text!r}: {problem}"


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (
            {"vramline.io/gpus": "2"},
            (
                "annotation vramline.io/gpus = '2': needs vramline.io/vram, which says how much on each GPU;"
                " accepted: both, or nvidia.com/gpu among the limits for plain GPUs"
            ),
        ),
        (
            {"vramline.io/gpus": "2", **MEMORY},
            (
                "annotation vramline.io/gpus = '2': needs vramline.io/vram, which says how much on each GPU;"
                " accepted: both, or nvidia.com/gpu among the limits for plain GPUs"
            ),
        ),
        (
            {"gpu-fraction-num-devices": "2", "vramline.io/vram": "8Gi"},
            (
                "annotation gpu-fraction-num-devices = '2': needs gpu-memory or gpu-fraction,"
                " which says how much"
                " on each GPU; accepted: both, or nvidia.com/gpu among the limits for plain GPUs"
            ),
        ),
        (
            {"vramline.io/gpus": "0", "vramline.io/vram": "8Gi"},
            "annotation vramline.io/gpus = '0': is too small; accepted: a whole number from 1 to 64",
        ),
        (
            {"vramline.io/gpus": "65", "vramline.io/vram": "8Gi"},
            "annotation vramline.io/gpus = '65': is too large; accepted: a whole number from 1 to 64",
        ),
        (
            {"gpu-fraction-num-devices": "two", **MEMORY},
            (
                "annotation gpu-fraction-num-devices = 'two': is not a whole number;"
                " accepted: a whole number from 1 to 64"
            ),
        ),
        (
            {"gpu-fraction-num-devices": "1k", **MEMORY},
            (
                "annotation gpu-fraction-num-devices = '1k': is not a whole number;"
                " accepted: a whole number from 1 to 64"
            ),
        ),
        (
            {"gpu-fraction-container-name": "side", **MEMORY},
            "annotation gpu-fraction-container-name = 'side': names no container of the pod; accepted: main",
        ),
        (
            {"gpu-fraction-container-name": "main"},
            "annotation gpu-fraction-container-name = 'main': needs gpu-memory or gpu-fraction",
        ),
        (
            {"gpu-memory": "8000", "gpu-fraction": "0.5"},
            "annotations gpu-memory and gpu-fraction: both ask for GPU memory; accepted: one of them",
        ),
        (
            {"vramline.io/vram": "8Gi", "gpu-memory": "8192"},
            "annotations vramline.io/vram and gpu-memory: both ask for GPU memory; accepted: one of them",
        ),
        (
            {f"{KAI}.main.gpu-memory.limit": "8Gi", "gpu-fraction": "0.5"},
            (
                f"annotations gpu-fraction and {KAI}.main.gpu-memory.limit: both ask for GPU memory;"
                " accepted: one of them"
            ),
        ),
        (
            {f"{KAI}.side.gpu-memory.request": "8Gi"},
            (
                f"annotation {KAI}.side.gpu-memory.request = 'side': names no container of the pod;"
                " accepted: main"
            ),
        ),
        (
            {f"{KAI}.main.gpu-memory.requests": "8Gi"},
            (
                f"annotation {KAI}.main.gpu-memory.requests: has an unknown ending;"
                " accepted: .gpu-memory.request or .gpu-memory.limit"
            ),
        ),
        (
            {f"{KAI}.main.gpu-memory.request": "8 GB"},
            (
                f"annotation {KAI}.main.gpu-memory.request = '8 GB': is not a Kubernetes quantity;"
                " accepted: a Kubernetes quantity of bytes, such as 8Gi"
            ),
        ),
        (
            {f"{KAI}.main.gpu-memory.request": "0"},
            (
                f"annotation {KAI}.main.gpu-memory.request = '0': must be more than 0;"
                " accepted: a Kubernetes quantity of bytes, such as 8Gi"
            ),
        ),
        (
            {f"{KAI}.main.gpu-memory.request": "8Gi", f"{KAI}.main.gpu-memory.limit": "4Gi"},
            (
                f"annotations {KAI}.main.gpu-memory.request and .gpu-memory.limit: the request"
                f" (8192 MiB) is more"
                " than the limit (4096 MiB); accepted: a request up to the limit"
            ),
        ),
        (
            {"nvidia.com/gpumem": "8000"},
            (
                "annotation nvidia.com/gpumem = '8000': is a resource and has no effect as an annotation;"
                " accepted: nvidia.com/gpumem among the limits of a container"
            ),
        ),
        (
            {**MEMORY, "nvidia.com/use-gputype": " , "},
            (
                "annotation nvidia.com/use-gputype = ' , ': names nothing;"
                " accepted: a comma list, or no such annotation"
            ),
        ),
        (
            {**MEMORY, "nvidia.com/use-gpuuuid": "GPU-a::3,GPU-b", "nvidia.com/nouse-gpuuuid": "GPU-a"},
            (
                "annotations nvidia.com/use-gpuuuid and nvidia.com/nouse-gpuuuid = 'GPU-a': is in both;"
                " accepted: in one of them"
            ),
        ),
        (
            {**MEMORY, "nvidia.com/use-gputype": "A100", "nvidia.com/nouse-gputype": "a100"},
            (
                "annotations nvidia.com/use-gputype and nvidia.com/nouse-gputype = 'a100': is in both;"
                " accepted: in one of them"
            ),
        ),
        (
            {**MEMORY, "nvidia.com/numa-bind": "yes"},
            (
                "annotation nvidia.com/numa-bind = 'yes': is neither true nor false;"
                ' accepted: "true" or "false"'
            ),
        ),
        (
            {**MEMORY, "hami.io/gpu-scheduler-policy": "topology-aware"},
            (
                "annotation hami.io/gpu-scheduler-policy = 'topology-aware': is not a policy that Vramline"
                " follows; accepted: binpack or spread"
            ),
        ),
        (
            {**MEMORY, "hami.io/gpu-scheduler-policy": "binpack,numa"},
            (
                "annotation hami.io/gpu-scheduler-policy = 'binpack,numa': is not a policy"
                " that Vramline follows;"
                " accepted: binpack or spread"
            ),
        ),
        (
            {**MEMORY, "hami.io/node-scheduler-policy": "fastest"},
            (
                "annotation hami.io/node-scheduler-policy = 'fastest': is not a policy that Vramline follows;"
                " accepted: binpack or spread"
            ),
        ),
        (
            {**MEMORY, "vramline.io/realtime-check": "Strict"},
            (
                "annotation vramline.io/realtime-check = 'Strict': is not a mode;"
                " accepted: strict, warning or disabled"
            ),
        ),
        (
            {**MEMORY, "hami.io/enable-realtime-check": "1"},
            (
                "annotation hami.io/enable-realtime-check = '1': is neither true nor false;"
                ' accepted: "true" or "false"'
            ),
        ),
        (
            {**MEMORY, "vramline.io/realtime-check": "strict", "hami.io/enable-realtime-check": "false"},
            (
                "annotations vramline.io/realtime-check and hami.io/enable-realtime-check:"
                " contradict each other"
                " (strict and false); accepted: one of them"
            ),
        ),
        (
            {**MEMORY, "vramline.io/realtime-check": "disabled", "hami.io/enable-realtime-check": "true"},
            (
                "annotations vramline.io/realtime-check and hami.io/enable-realtime-check:"
                " contradict each other"
                " (disabled and true); accepted: one of them"
            ),
        ),
    ],
)
def test_annotations_are_refused(annotations: dict[str, str], message: str) -> None:
    assert refusal(annotations=annotations) == message


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"gpumem": "8Gi"},
            "nvidia.com/gpumem = '8Gi': counts MiB and takes no unit; accepted: 8192 for 8Gi",
        ),
        (
            {"gpumem": "1Ti"},
            "nvidia.com/gpumem = '1Ti': counts MiB and takes no unit; accepted: 1048576 for 1Ti",
        ),
        (
            {"gpumem": "lotsGi"},
            f"nvidia.com/gpumem = 'lotsGi': counts MiB and takes no unit; {MIB}",
        ),
        (
            {"gpumem": -1},
            f"nvidia.com/gpumem = -1: is not a whole number from 0 to 2147483647; {MIB}",
        ),
        (
            {"gpumem": "500m"},
            f"nvidia.com/gpumem = '500m': is not a whole number from 0 to 2147483647; {MIB}",
        ),
        (
            {"gpumem": "8G"},
            f"nvidia.com/gpumem = '8G': is not a whole number from 0 to 2147483647; {MIB}",
        ),
        (
            {"gpumem": "1e99"},
            f"nvidia.com/gpumem = '1e99': is not a whole number from 0 to 2147483647; {MIB}",
        ),
        (
            {"gpumem": "8 GB"},
            (
                "nvidia.com/gpumem = '8 GB': is not a Kubernetes quantity;"
                " accepted: a Kubernetes quantity, such as 2, 500m or 4Gi"
            ),
        ),
        (
            {"gpumem": float("nan")},
            (
                "nvidia.com/gpumem = nan: is not a Kubernetes quantity;"
                " accepted: a Kubernetes quantity, such as 2, 500m or 4Gi"
            ),
        ),
        (
            {"gpumem_percentage": 101},
            "nvidia.com/gpumem-percentage = 101: is too large; accepted: a whole number from 0 to 100",
        ),
        (
            {"gpumem_percentage": "50%"},
            (
                "nvidia.com/gpumem-percentage = '50%': is not a whole number;"
                " accepted: a whole number from 0 to 100"
            ),
        ),
        (
            {"gpumem_percentage": -5},
            "nvidia.com/gpumem-percentage = -5: is too small; accepted: a whole number from 0 to 100",
        ),
        (
            {"gpucores": 101},
            "nvidia.com/gpucores = 101: is too large; accepted: a whole number from 0 to 100",
        ),
        (
            {"gpu": 1, "priority": 2},
            "nvidia.com/priority = 2: is too large; accepted: a whole number from 0 to 1",
        ),
        (
            {"gpu": "1.5"},
            "nvidia.com/gpu = '1.5': is not a whole number; accepted: a whole number from 0 to 65535",
        ),
        ({"gpu": -1}, "nvidia.com/gpu = -1: is too small; accepted: a whole number from 0 to 65535"),
        (
            {"gpu": "one"},
            "nvidia.com/gpu = 'one': is not a whole number; accepted: a whole number from 0 to 65535",
        ),
        (
            {"gpu": 2**63},
            "nvidia.com/gpu = 9223372036854775808: is too large; accepted: a whole number from 0 to 65535",
        ),
        (
            {"gpumem": 8000, "gpumem_percentage": 50},
            "nvidia.com/gpumem and nvidia.com/gpumem-percentage: both ask for memory; accepted: one of them",
        ),
        (
            {"gpu": 0, "gpumem": 8000},
            (
                "nvidia.com/gpu = 0: contradicts the GPU memory or cores that the same container asks for;"
                " accepted: nvidia.com/gpu: 1 or more, or none of them"
            ),
        ),
        (
            {"gpu": 1, "limits": {"nvidia.com/gpu.shared": 1}},
            "nvidia.com/gpu and nvidia.com/gpu.shared: are two names of one resource; accepted: one of them",
        ),
        (
            {"limits": {"gpu-memory": 8000}},
            (
                "gpu-memory: is an annotation, not a resource;"
                " accepted: gpu-memory among the annotations of the pod"
            ),
        ),
        (
            {"limits": {"vramline.io/vram": "8Gi"}},
            (
                "vramline.io/vram: is an annotation, not a resource;"
                " accepted: vramline.io/vram among the annotations of the pod"
            ),
        ),
    ],
)
def test_limits_are_refused(limits: dict[str, Any], message: str) -> None:
    assert refusal(container(**limits)) == f"container main: {message}"


def test_a_number_too_long_to_print_is_refused_in_one_short_line() -> None:
    assert len(refusal(container(gpu=16**20_000))) < 250


@pytest.mark.parametrize(
    ("containers", "annotations", "message"),
    [
        pytest.param(
            [container(gpumem=8000)],
            MEMORY,
            "annotation gpu-memory and limit nvidia.com/gpumem: both ask for GPU memory;"
            " accepted: one of them",
            id="MiB twice",
        ),
        pytest.param(
            [container(gpumem_percentage=50)],
            {"vramline.io/vram": "8Gi"},
            "annotation vramline.io/vram and limit nvidia.com/gpumem-percentage: both ask for GPU memory;"
            " accepted: one of them",
            id="MiB and percent",
        ),
        pytest.param(
            [container(gpu=2)],
            MEMORY,
            "annotation gpu-memory and limit nvidia.com/gpu: ask for 1 and for 2 GPUs;"
            " accepted: nvidia.com/gpu: 1, or no such limit",
            id="counts that disagree",
        ),
        pytest.param(
            [container("a", gpu=1), container("b", gpu=1)],
            MEMORY,
            "annotation gpu-memory and limit nvidia.com/gpu: ask for 1 and for 2 GPUs;"
            " accepted: nvidia.com/gpu: 1, or no such limit",
            id="plain counts add before they are compared",
        ),
        pytest.param(
            [container("a", gpumem=8000), container("b", gpu=1)],
            {},
            "containers a and b: ask for MiB and for a number of GPUs, which do not add up; accepted: the"
            " same of nvidia.com/gpumem, nvidia.com/gpumem-percentage or plain nvidia.com/gpu in both",
            id="MiB and a plain GPU",
        ),
        pytest.param(
            [container("a", gpumem=8000), container("b", gpumem_percentage=10)],
            {},
            "containers a and b: ask for MiB and for a percentage, which do not add up; accepted: the same"
            " of nvidia.com/gpumem, nvidia.com/gpumem-percentage or plain nvidia.com/gpu in both",
            id="MiB and percent in two containers",
        ),
        pytest.param(
            [container("a", gpumem_percentage=60), container("b", gpumem_percentage=50)],
            {},
            "containers a and b: nvidia.com/gpumem-percentage = 110: is more than one GPU has, added up over"
            " the containers that run together; accepted: at most 100",
            id="110 percent",
        ),
        pytest.param(
            [container("a", gpumem=1, gpucores=60), container("b", gpumem=1, gpucores=50)],
            {},
            "containers a and b: nvidia.com/gpucores = 110: is more than one GPU has, added up over"
            " the containers that run together; accepted: at most 100",
            id="110 percent of the cores",
        ),
        pytest.param(
            [container("a", gpumem=2**31 - 1), container("b", gpumem=1)],
            {},
            "containers a and b: nvidia.com/gpumem = 2147483648: is more than one GPU has, added up over"
            " the containers that run together; accepted: at most 2147483647",
            id="more MiB than can be",
        ),
        pytest.param(
            [container(limits={"nvidia.com/mig-1g.5gb": 1})],
            MEMORY,
            "nvidia.com/mig-1g.5gb and annotation gpu-memory: ask for a MIG instance and for a share of a"
            " GPU; accepted: one of them",
            id="a MIG instance and memory",
        ),
        pytest.param(
            [container("a", limits={"nvidia.com/mig-1g.5gb": 1}), container("b", gpu=1)],
            {},
            "nvidia.com/mig-1g.5gb and nvidia.com/gpu: ask for a MIG instance and for a share of a GPU;"
            " accepted: one of them",
            id="a MIG instance and a GPU",
        ),
    ],
)
def test_a_contradiction_is_refused(
    containers: list[dict[str, Any]], annotations: dict[str, str], message: str
) -> None:
    assert refusal(*containers, annotations=annotations) == message


def test_an_init_container_of_another_kind_is_refused_too() -> None:
    message = refusal(container("a", gpumem=8000), initContainers=[container("fetch", gpumem_percentage=10)])

    assert message.startswith("containers fetch and a: ask for a percentage and for MiB, which do not add up")


def test_percentages_of_containers_that_never_run_together_may_exceed_the_card() -> None:
    pod = pod_object(
        container("a", gpumem_percentage=60), initContainers=[container("fetch", gpumem_percentage=60)]
    )

    assert read_ask(pod) is not None
