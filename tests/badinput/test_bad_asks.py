"""Pods whose wish cannot be understood: one line that names it, exit 2, and the good pod is placed."""

import pytest
from _pytest.mark.structures import ParameterSet

from badinput.command import BesideGood


def _case(sentence: str, *, annotations: str = "", limits: str = "", says: tuple[str, ...]) -> ParameterSet:
    return pytest.param(annotations, limits, says, id=sentence)


_MEMORY = "annotation gpu-memory"
_CASES = [
    _case(
        "memory with a blank and a unit", annotations='gpu-memory: "8 GB"', says=(_MEMORY, "'8 GB'", "8000")
    ),
    _case("negative memory", annotations='gpu-memory: "-8000"', says=(_MEMORY, "'-8000'", "whole number")),
    _case("no memory at all", annotations='gpu-memory: "0"', says=(_MEMORY, "'0'", "more than 0")),
    _case("memory as 1e99", annotations='gpu-memory: "1e99"', says=(_MEMORY, "'1e99'", "whole number")),
    _case("memory as the number 1e99", annotations="gpu-memory: 1e99", says=("[gpu-memory] = 1e+99", "text")),
    _case("memory without quotes", annotations="gpu-memory: 8000", says=("[gpu-memory] = 8000", '"8000"')),
    _case("memory that is not a number", annotations="gpu-memory: .nan", says=("[gpu-memory] = nan", "text")),
    _case("memory of 2^63", annotations='gpu-memory: "9223372036854775808"', says=(_MEMORY, "2,147,483,647")),
    _case("empty memory", annotations='gpu-memory: ""', says=(_MEMORY, "''")),
    _case("memory in GiB", annotations='gpu-memory: "8Gi"', says=(_MEMORY, "'8Gi'", "8192 for 8Gi")),
    _case("hexadecimal memory", annotations='gpu-memory: "0x10"', says=(_MEMORY, "'0x10'")),
    _case("digits of another script", annotations='gpu-memory: "８０００"', says=(_MEMORY, "'８０００'")),
    _case("memory that is null", annotations="gpu-memory: null", says=("[gpu-memory]", "must be text")),
    _case("memory that is a list", annotations="gpu-memory: [1]", says=("[gpu-memory]", "must be text")),
    _case("memory that is true", annotations="gpu-memory: yes", says=("[gpu-memory]", '"true"')),
    _case(
        "memory of 5,000 digits",
        annotations=f'gpu-memory: "{"9" * 5000}"',
        says=(_MEMORY, "5002 characters", "2,147,483,647"),
    ),
    _case(
        "a fraction above one",
        annotations='gpu-fraction: "1.5"',
        says=("gpu-fraction", "'1.5'", "between 0 and 1"),
    ),
    _case("a fraction of nothing", annotations='gpu-fraction: "0"', says=("gpu-fraction", "'0'")),
    _case(
        "a fraction that is whole",
        annotations='gpu-fraction: "1"',
        says=("gpu-fraction", "nvidia.com/gpu: 1"),
    ),
    _case("a negative fraction", annotations='gpu-fraction: "-0.5"', says=("gpu-fraction", "'-0.5'")),
    _case("a fraction that is no number", annotations='gpu-fraction: "NaN"', says=("gpu-fraction", "'NaN'")),
    _case("a fraction as a ratio", annotations='gpu-fraction: "1/2"', says=("gpu-fraction", "'1/2'", "0.25")),
    _case("a fraction of atoms", annotations='gpu-fraction: "1.2e-10"', says=("gpu-fraction", "'1.2e-10'")),
    _case(
        "memory and fraction together",
        annotations='gpu-memory: "8000", gpu-fraction: "0.5"',
        says=("gpu-memory and gpu-fraction", "one of them"),
    ),
    _case(
        "two spellings of memory",
        annotations='gpu-memory: "8000", vramline.io/vram: 8Gi',
        says=("vramline.io/vram and gpu-memory", "one of them"),
    ),
    _case(
        "VRAM in decimal units",
        annotations="vramline.io/vram: 8GB",
        says=("vramline.io/vram", "'8GB'", "8Gi"),
    ),
    _case("broken GiB", annotations="vramline.io/vram: 8.5Gi", says=("vramline.io/vram", "'8.5Gi'")),
    _case(
        "VRAM beyond belief", annotations="vramline.io/vram: 9999999Gi", says=("9999999Gi", "2,147,483,647")
    ),
    _case(
        "on no GPU",
        annotations='vramline.io/vram: 8Gi, vramline.io/gpus: "0"',
        says=("vramline.io/gpus", "'0'", "1 to 64"),
    ),
    _case(
        "on 65 GPUs",
        annotations='vramline.io/vram: 8Gi, vramline.io/gpus: "65"',
        says=("vramline.io/gpus", "'65'", "1 to 64"),
    ),
    _case(
        "a number of GPUs alone",
        annotations='vramline.io/gpus: "2"',
        says=("vramline.io/gpus", "vramline.io/vram"),
    ),
    _case(
        "devices in words",
        annotations='gpu-fraction: "0.5", gpu-fraction-num-devices: "two"',
        says=("gpu-fraction-num-devices", "'two'", "1 to 64"),
    ),
    _case(
        "a container that is not there",
        annotations='gpu-fraction: "0.5", gpu-fraction-container-name: nobody',
        says=("gpu-fraction-container-name", "'nobody'", "accepted: c"),
    ),
    _case(
        "memory for a container that is not there",
        annotations="nvidia.com/container.x.gpu-memory.request: 8Gi",
        says=("container.x.gpu-memory.request", "accepted: c"),
    ),
    _case(
        "memory for a container in words",
        annotations="nvidia.com/container.c.gpu-memory.request: lots",
        says=("container.c.gpu-memory.request", "'lots'", "8Gi"),
    ),
    _case(
        "a limit below the request",
        annotations=(
            "nvidia.com/container.c.gpu-memory.request: 8Gi, nvidia.com/container.c.gpu-memory.limit: 4Gi"
        ),
        says=("gpu-memory.request", "8192 MiB", "4096 MiB"),
    ),
    _case("less than no GPU", limits="nvidia.com/gpu: -1", says=("container c: nvidia.com/gpu", "-1")),
    _case("half a GPU", limits='nvidia.com/gpu: "0.5"', says=("nvidia.com/gpu", "'0.5'", "whole number")),
    _case("100,000 GPUs", limits='nvidia.com/gpu: "100000"', says=("nvidia.com/gpu", "'100000'")),
    _case(
        "gpumem in GiB",
        limits="nvidia.com/gpu: 1, nvidia.com/gpumem: 8Gi",
        says=("nvidia.com/gpumem", "8192 for 8Gi"),
    ),
    _case(
        "negative gpumem", limits="nvidia.com/gpu: 1, nvidia.com/gpumem: -5", says=("nvidia.com/gpumem", "-5")
    ),
    _case(
        "infinite gpumem",
        limits="nvidia.com/gpu: 1, nvidia.com/gpumem: .inf",
        says=("nvidia.com/gpumem", "inf"),
    ),
    _case("gpumem that is no number", limits="nvidia.com/gpumem: .nan", says=("nvidia.com/gpumem", "nan")),
    _case(
        "more than all of the memory",
        limits="nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 101",
        says=("nvidia.com/gpumem-percentage", "101", "0 to 100"),
    ),
    _case(
        "memory and percentage together",
        limits="nvidia.com/gpu: 1, nvidia.com/gpumem: 1000, nvidia.com/gpumem-percentage: 50",
        says=("nvidia.com/gpumem and nvidia.com/gpumem-percentage", "one of them"),
    ),
    _case(
        "more than all of the cores",
        limits="nvidia.com/gpu: 1, nvidia.com/gpucores: 101",
        says=("nvidia.com/gpucores", "101", "0 to 100"),
    ),
    _case(
        "a resource as an annotation",
        annotations='nvidia.com/gpumem: "1000"',
        says=("annotation nvidia.com/gpumem", "limits of a container"),
    ),
    _case(
        "memory in annotation and limits",
        annotations='gpu-memory: "1000"',
        limits="nvidia.com/gpumem: 2000",
        says=("gpu-memory", "nvidia.com/gpumem", "one of them"),
    ),
    _case(
        "a misspelt mode",
        annotations='gpu-memory: "1000", vramline.io/realtime-check: strikt',
        says=("vramline.io/realtime-check", "'strikt'", "strict, warning or disabled"),
    ),
    _case(
        "a switch that is neither on nor off",
        annotations='gpu-memory: "1000", hami.io/enable-realtime-check: maybe',
        says=("hami.io/enable-realtime-check", "'maybe'", '"true" or "false"'),
    ),
    _case(
        "an unknown policy",
        annotations='gpu-memory: "1000", hami.io/node-scheduler-policy: bestest',
        says=("hami.io/node-scheduler-policy", "'bestest'", "binpack or spread"),
    ),
    _case(
        "a NUMA wish in words",
        annotations='gpu-memory: "1000", nvidia.com/numa-bind: perhaps',
        says=("nvidia.com/numa-bind", "'perhaps'"),
    ),
    _case(
        "a card wanted and not wanted",
        annotations='gpu-memory: "1000", nvidia.com/use-gpuuuid: GPU-1, nvidia.com/nouse-gpuuuid: GPU-1',
        says=("nvidia.com/use-gpuuuid and nvidia.com/nouse-gpuuuid", "'GPU-1'"),
    ),
    _case(
        "an empty list of models",
        annotations='gpu-memory: "1000", nvidia.com/use-gputype: ","',
        says=("nvidia.com/use-gputype", "','"),
    ),
    _case("CPU in words", limits="cpu: lots", says=("limits.cpu", "'lots'", "500m")),
    _case("CPU that is no number", limits="cpu: .nan", says=("limits.cpu", "nan")),
    _case("negative CPU", limits="cpu: -1", says=("limits.cpu", "-1")),
    _case("memory beyond belief", limits="memory: 1e300", says=("limits.memory", "1e+300")),
]


@pytest.mark.parametrize(("annotations", "limits", "says"), _CASES)
def test_a_bad_ask_is_rejected_with_one_line_and_the_good_pod_is_placed(
    annotations: str, limits: str, says: tuple[str, ...], beside_good: BesideGood
) -> None:
    said = beside_good(
        "apiVersion: v1\nkind: Pod\n"
        f"metadata: {{name: bad, namespace: a, annotations: {{{annotations}}}}}\n"
        f"spec: {{containers: [{{name: c, resources: {{limits: {{{limits}}}}}}}]}}\n"
    )

    assert said.status == 2
    (error,) = said.errors
    assert error.startswith("Pod a/bad")
    assert [word for word in says if word not in error] == []
    assert said.others == []
    assert said.good_is_bound
    assert any(line.startswith("Rejected") and "a/bad" in line for line in said.out.splitlines())
