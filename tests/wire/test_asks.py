"""Every spelling of a GPU request, and what the containers of a pod make together."""

from typing import Any

import pytest

from kubernetes_builders import container, pod_object
from vramline.model.ask import (
    Ask,
    Constraints,
    MibSize,
    PolicyName,
    RealtimeMode,
    ShareSize,
    Size,
    UnsizedSize,
    WholeSize,
)
from vramline.units import Mib
from vramline.wire.asks import read_ask


def ask_of(*containers: dict[str, Any], **fields: Any) -> Ask:
    ask = read_ask(pod_object(*containers, **fields))
    assert ask is not None
    return ask


def mib(amount: int) -> MibSize:
    return MibSize(Mib(amount))


@pytest.mark.parametrize(
    ("annotations", "gpus", "size"),
    [
        pytest.param({"vramline.io/vram": "8000"}, 1, mib(8000), id="vram is MiB"),
        pytest.param({"vramline.io/vram": "8000Mi"}, 1, mib(8000), id="vram with Mi"),
        pytest.param({"vramline.io/vram": "8Gi"}, 1, mib(8192), id="vram with Gi"),
        pytest.param({"vramline.io/vram": "8Gi", "vramline.io/gpus": "2"}, 2, mib(8192), id="vram on two"),
        pytest.param({"vramline.io/vram": "1", "vramline.io/gpus": "64"}, 64, mib(1), id="vram on 64"),
        pytest.param({"gpu-memory": "8000"}, 1, mib(8000), id="KAI memory"),
        pytest.param(
            {"gpu-memory": "8000", "gpu-fraction-num-devices": "3"}, 3, mib(8000), id="KAI on three"
        ),
        pytest.param({"gpu-fraction": "0.25"}, 1, ShareSize(1, 4), id="KAI fraction"),
        pytest.param({"gpu-fraction": "0.50"}, 1, ShareSize(1, 2), id="a fraction is reduced"),
        pytest.param({"gpu-fraction": ".5"}, 1, ShareSize(1, 2), id="a fraction without its zero"),
        pytest.param({"gpu-fraction": "0.333333333"}, 1, ShareSize(333333333, 10**9), id="nine decimals"),
        pytest.param(
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, 2, ShareSize(1, 2), id="half of two"
        ),
        pytest.param(
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"},
            1,
            ShareSize(1, 2),
            id="the container may be named",
        ),
        pytest.param(
            {"nvidia.com/container.main.gpu-memory.request": "8Gi"}, 1, mib(8192), id="KAI 0.18 request"
        ),
        pytest.param(
            {"nvidia.com/container.main.gpu-memory.limit": "8Gi"}, 1, mib(8192), id="a limit alone counts"
        ),
        pytest.param(
            {
                "nvidia.com/container.main.gpu-memory.request": "4Gi",
                "nvidia.com/container.main.gpu-memory.limit": "8Gi",
            },
            1,
            mib(4096),
            id="the request is what is scheduled",
        ),
        pytest.param(
            {"nvidia.com/container.main.gpu-memory.request": "1"}, 1, mib(1), id="bytes are rounded up"
        ),
    ],
)
def test_an_annotation_asks(annotations: dict[str, str], gpus: int, size: Size) -> None:
    ask = ask_of(annotations=annotations)

    assert (ask.gpus, ask.size, ask.cores) == (gpus, size, 0)


@pytest.mark.parametrize(
    ("limits", "gpus", "size", "cores"),
    [
        pytest.param({"gpu": 1}, 1, UnsizedSize(), 0, id="one GPU"),
        pytest.param({"gpu": "4"}, 4, UnsizedSize(), 0, id="four GPUs, quoted"),
        pytest.param({"gpu.shared": 2}, 2, UnsizedSize(), 0, id="the renamed resource"),
        pytest.param({"gpu": 1, "gpumem": 8000}, 1, mib(8000), 0, id="MiB"),
        pytest.param({"gpu": 1, "gpumem": "8k"}, 1, mib(8000), 0, id="8k is how the API server writes 8000"),
        pytest.param({"gpu": 1, "gpumem": 8000.0}, 1, mib(8000), 0, id="a YAML number with a decimal zero"),
        pytest.param({"gpumem": 8000}, 1, mib(8000), 0, id="MiB alone means one GPU"),
        pytest.param({"gpu": 2, "gpumem-percentage": 50}, 2, ShareSize(1, 2), 0, id="percent"),
        pytest.param({"gpu": 1, "gpumem-percentage": 100}, 1, WholeSize(), 0, id="all of it"),
        pytest.param({"gpu": 1, "gpumem-percentage": 7}, 1, ShareSize(7, 100), 0, id="seven percent"),
        pytest.param({"gpu": 1, "gpumem": 0}, 1, UnsizedSize(), 0, id="0 MiB is not set"),
        pytest.param({"gpu": 1, "gpumem-percentage": 0}, 1, UnsizedSize(), 0, id="0 percent is not set"),
        pytest.param({"gpumem": 8000, "gpumem-percentage": 0}, 1, mib(8000), 0, id="MiB with 0 percent"),
        pytest.param({"gpumem": 8000, "gpucores": 30}, 1, mib(8000), 30, id="MiB and cores"),
        pytest.param({"gpucores": 30}, 1, UnsizedSize(), 30, id="cores alone mean one GPU"),
        pytest.param({"gpu": 1, "priority": 0}, 1, UnsizedSize(), 0, id="high priority"),
        pytest.param({"gpu": 1, "priority": 1}, 1, UnsizedSize(), 0, id="low priority"),
    ],
)
def test_limits_ask(limits: dict[str, Any], gpus: int, size: Size, cores: int) -> None:
    ask = ask_of(container(limits={f"nvidia.com/{key}": value for key, value in limits.items()}))

    assert (ask.gpus, ask.size, ask.cores) == (gpus, size, cores)


def test_limits_win_over_requests() -> None:
    ask = ask_of(container(gpu=1, gpumem=8000, requests={"nvidia.com/gpumem": 4000}))

    assert ask.size == mib(8000)


def test_requests_count_where_there_is_no_limit() -> None:
    ask = ask_of(container(requests={"nvidia.com/gpu": 2}))

    assert (ask.gpus, ask.size) == (2, UnsizedSize())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"annotations": {"team": "blue"}}, id="foreign annotations"),
        pytest.param(
            {"annotations": {"nvidia.com/use-gputype": " , "}}, id="a choice without an ask is not read"
        ),
        pytest.param(
            {"annotations": {"nvidia.com/container.main.gpu-compute.mode": "time-slicing"}},
            id="another word of KAI about a container",
        ),
    ],
)
def test_a_pod_without_a_request_asks_for_nothing(fields: dict[str, Any]) -> None:
    assert read_ask(pod_object(**fields)) is None


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"cpu": 1, "nvidia.com/gpu": 0}, id="0 GPUs"),
        pytest.param({"nvidia.com/gpumem": 0}, id="0 MiB"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1}, id="a MIG instance"),
        pytest.param({"vramline.io/managed": 1}, id="the managed resource"),
        pytest.param({"nvidia.com/pgpu": 1}, id="some other device"),
    ],
)
def test_limits_that_ask_for_nothing_of_ours(limits: dict[str, Any]) -> None:
    assert read_ask(pod_object(container(limits=limits))) is None


def test_a_pod_without_a_spec_asks_for_nothing() -> None:
    assert read_ask(pod_object(containers=None)) is None


def test_an_annotation_may_stand_beside_the_device_count_that_it_means() -> None:
    ask = ask_of(container(gpu=2), annotations={"vramline.io/vram": "8Gi", "vramline.io/gpus": "2"})

    assert (ask.gpus, ask.size) == (2, mib(8192))


def test_cores_may_stand_beside_an_annotation_and_add_up() -> None:
    ask = ask_of(container("a", gpucores=30), container("b", gpucores=20), annotations={"gpu-memory": "8000"})

    assert (ask.gpus, ask.size, ask.cores) == (1, mib(8000), 50)


# ── several containers: what runs together adds, what runs before takes the maximum ──────────────────


@pytest.mark.parametrize(
    ("inits", "mains", "gpus", "size", "cores"),
    [
        pytest.param(
            [], [{"gpumem": 4000}, {"gpumem": 3000}], 1, mib(7000), 0, id="MiB add on the same card"
        ),
        pytest.param(
            [],
            [{"gpu": 2, "gpumem": 4000}, {"gpu": 1, "gpumem": 3000}],
            2,
            mib(7000),
            0,
            id="the larger count, the sum on each",
        ),
        pytest.param([], [{"gpu": 2}, {"gpu": 1}], 3, UnsizedSize(), 0, id="plain counts add"),
        pytest.param(
            [],
            [{"gpu": 1, "gpucores": 60}, {"gpu": 1, "gpucores": 70}],
            2,
            UnsizedSize(),
            70,
            id="plain counts are different cards, so cores do not add",
        ),
        pytest.param(
            [],
            [{"gpumem_percentage": 30}, {"gpumem_percentage": 20}],
            1,
            ShareSize(1, 2),
            0,
            id="percent add",
        ),
        pytest.param(
            [],
            [{"gpumem_percentage": 60}, {"gpumem_percentage": 40}],
            1,
            WholeSize(),
            0,
            id="up to the whole",
        ),
        pytest.param(
            [], [{"gpumem": 1, "gpucores": 60}, {"gpumem": 1, "gpucores": 40}], 1, mib(2), 100, id="cores add"
        ),
        pytest.param([{"gpumem": 9000}], [{"gpumem": 4000}], 1, mib(9000), 0, id="a large init container"),
        pytest.param([{"gpumem": 3000}], [{"gpumem": 4000}], 1, mib(4000), 0, id="a small init container"),
        pytest.param(
            [{"gpumem": 3000}, {"gpumem": 5000}], [{"gpumem": 4000}], 1, mib(5000), 0, id="the largest init"
        ),
        pytest.param(
            [{"gpu": 4}], [{"gpu": 1}, {"gpu": 2}], 4, UnsizedSize(), 0, id="init counts do not add"
        ),
        pytest.param(
            [{"gpumem": 1000, "restartPolicy": "Always"}],
            [{"gpumem": 4000}],
            1,
            mib(5000),
            0,
            id="a sidecar runs with the main container",
        ),
        pytest.param(
            [{"gpumem": 1000, "restartPolicy": "Always"}, {"gpumem": 9000}],
            [{"gpumem": 4000}],
            1,
            mib(10_000),
            0,
            id="a sidecar runs with the init containers after it",
        ),
        pytest.param(
            [{"gpumem": 9000}, {"gpumem": 1000, "restartPolicy": "Always"}],
            [{"gpumem": 4000}],
            1,
            mib(9000),
            0,
            id="and not with those before it",
        ),
        pytest.param([{"gpumem": 9000}], [{}], 1, mib(9000), 0, id="only an init container asks"),
        pytest.param(
            [], [{}, {"gpumem": 4000}], 1, mib(4000), 0, id="a container without a GPU adds nothing"
        ),
    ],
)
def test_containers_add_up(
    inits: list[dict[str, Any]], mains: list[dict[str, Any]], gpus: int, size: Size, cores: int
) -> None:
    ask = ask_of(
        *(container(f"main-{i}", **limits) for i, limits in enumerate(mains)),
        initContainers=[container(f"init-{i}", **limits) for i, limits in enumerate(inits)],
    )

    assert (ask.gpus, ask.size, ask.cores) == (gpus, size, cores)


def test_requests_by_container_annotation_add_up_like_limits() -> None:
    ask = ask_of(
        container("a"),
        container("b"),
        initContainers=[container("fetch")],
        annotations={
            "nvidia.com/container.a.gpu-memory.request": "4Gi",
            "nvidia.com/container.b.gpu-memory.request": "2Gi",
            "nvidia.com/container.fetch.gpu-memory.request": "5Gi",
        },
    )

    assert ask.size == mib(6144)


# ── constraints, policies and mode ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        pytest.param("use-gputype", "A100, H100", {"use_models": ("a100", "h100")}, id="models, lower case"),
        pytest.param("nouse-gputype", " T4 ,,", {"avoid_models": ("t4",)}, id="models to avoid, trimmed"),
        pytest.param("use-gpuuuid", "GPU-a,GPU-b", {"use_uuids": ("GPU-a", "GPU-b")}, id="UUIDs"),
        pytest.param("use-gpuuuid", "GPU-a::7", {"use_uuids": ("GPU-a",)}, id="a replica id means its card"),
        pytest.param("nouse-gpuuuid", "GPU-A", {"avoid_uuids": ("GPU-A",)}, id="UUIDs keep their case"),
        pytest.param("numa-bind", "true", {"numa_bind": True}, id="one NUMA node"),
        pytest.param("numa-bind", "false", {}, id="any NUMA node"),
    ],
)
def test_annotations_choose_cards(key: str, text: str, expected: dict[str, Any]) -> None:
    ask = ask_of(annotations={"gpu-memory": "1", f"nvidia.com/{key}": text})

    assert ask.constraints == Constraints(**expected)


@pytest.mark.parametrize(
    ("word", "policy"),
    [("binpack", PolicyName.BINPACK), ("spread", PolicyName.SPREAD)],
)
def test_annotations_choose_policies(word: str, policy: PolicyName) -> None:
    ask = ask_of(
        annotations={
            "gpu-memory": "1",
            "hami.io/node-scheduler-policy": word,
            "hami.io/gpu-scheduler-policy": word,
        }
    )

    assert (ask.node_policy, ask.gpu_policy) == (policy, policy)


@pytest.mark.parametrize(
    ("word", "switch", "mode", "enabled"),
    [
        pytest.param(None, None, None, None, id="no word"),
        pytest.param("strict", None, RealtimeMode.STRICT, None, id="strict"),
        pytest.param("warning", None, RealtimeMode.WARNING, None, id="warning"),
        pytest.param("disabled", None, RealtimeMode.DISABLED, None, id="disabled"),
        pytest.param(None, "false", RealtimeMode.DISABLED, False, id="switched off"),
        pytest.param(None, "true", None, True, id="switched on leaves the mode open"),
        pytest.param("warning", "true", RealtimeMode.WARNING, True, id="on, and how"),
        pytest.param("disabled", "false", RealtimeMode.DISABLED, False, id="off, twice"),
    ],
)
def test_annotations_choose_a_mode(
    word: str | None, switch: str | None, mode: RealtimeMode | None, enabled: bool | None
) -> None:
    said = {"vramline.io/realtime-check": word, "hami.io/enable-realtime-check": switch}
    ask = ask_of(annotations={"gpu-memory": "1", **{key: text for key, text in said.items() if text}})

    assert (ask.mode, ask.enable_realtime) == (mode, enabled)


def test_an_ask_carries_the_pods_identity() -> None:
    ask = ask_of(annotations={"gpu-memory": "1"}, meta={"uid": "4711"})

    assert (ask.pod, ask.pod_uid) == ("ns/p", "4711")


def test_a_pod_without_uid_or_namespace_gets_stable_ones() -> None:
    ask = ask_of(annotations={"gpu-memory": "1"}, meta={"namespace": None})

    assert (ask.pod, ask.pod_uid) == ("default/p", "uid:default/p")


@pytest.mark.parametrize("app", ["kai-resource-reservation", "resource-reservation"])
def test_a_reservation_pod_of_kai_asks_for_nothing(app: str) -> None:
    pod = pod_object(container(gpu=1), labels={"app": app, "runai-gpu-group": "g1"})

    assert read_ask(pod) is None


def test_a_pod_that_only_looks_like_a_reservation_asks() -> None:
    assert ask_of(container(gpu=1), labels={"app": "resource-reservation"}).gpus == 1
