"""Nodes without an agent: who is asked, how often, and what is made of the answer."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference.clusters import GpuNode, cluster_of, gpu_pod, seen, unseen
from inference.exec_server import ExecServer
from vramline.errors import RequestError
from vramline.inference import GpuCluster, Sources, find_best_node_for_deployment, get_cluster_gpu_status
from vramline.inference.gpu_info import GPUInfo
from vramline.inference.other_eyes import LookKeeper, OtherEyes, match_cards
from vramline.kube.target import Cluster, Target, User
from vramline.model.node import Node
from vramline.probes.device import DeviceReading, Vendor
from vramline.probes.options import ProbeOptions
from vramline.units import Mib
from vramline.wire.kubernetes import PodObject

NOWHERE = Target(cluster=Cluster(server="http://127.0.0.1:1"), user=User())
PODS_ONLY = Sources(this_machine=False)


def line(index: int, uuid: str = "GPU-x", *, used: object = 4_000, busy: object = 90) -> str:
    return f"{index}, {uuid}, NVIDIA A100-40GB, 40960, {used}, {busy}, 51\n"


def sliced(name: str) -> GpuNode:
    """One card for many pods, known by labels alone."""
    return unseen(name, 1, devices=10)


def enter(
    server: ExecServer, cluster: GpuCluster, *, keeper: LookKeeper | None = None, rounds: int = 1
) -> GpuCluster:
    """Look through pods; each round is another question about the same cluster."""

    async def look() -> None:
        async with server.running() as target:
            for _ in range(rounds):
                await OtherEyes(cluster, target, PODS_ONLY, keeper=keeper or LookKeeper()).look()

    asyncio.run(look())
    return cluster


def cards(cluster: GpuCluster) -> list[GPUInfo]:
    return get_cluster_gpu_status(cluster=cluster)


# ── pods ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_tells_the_card_that_it_shares() -> None:
    server = ExecServer(p=line(0))
    cluster = enter(server, cluster_of(sliced("n1"), pods=(gpu_pod("p", "n1"),)))

    [card] = cards(cluster)

    assert (card.memory_used_mb, card.utilization_percent, card.temperature_c) == (4_000, 90, 51)
    assert (card.source, card.state, card.has_metrics) == ("nvidia-smi in a pod", "known-busy", True)
    assert card.age_s is not None
    assert server.commands[0][0] == "nvidia-smi"


def test_cards_that_no_pod_shows_stay_unknown_and_are_not_idle() -> None:
    """The original took the one card that a pod sees for card 0 and for the whole node."""
    server = ExecServer(p=line(0))
    cluster = enter(server, cluster_of(unseen("n1", 8), pods=(gpu_pod("p", "n1"),)))

    assert [card.has_metrics for card in cards(cluster)].count(True) == 1
    assert find_best_node_for_deployment(cluster=cluster) is None


def test_a_pod_that_sees_all_cards_tells_all_of_them() -> None:
    everything = "".join(line(index, f"GPU-{index}", used=0, busy=index) for index in range(4))
    cluster = enter(ExecServer(p=everything), cluster_of(unseen("n1", 4), pods=(gpu_pod("p", "n1"),)))

    assert [card.utilization_percent for card in cards(cluster)] == [0, 1, 2, 3]
    assert find_best_node_for_deployment(3, cluster=cluster) == "n1"


def test_a_pod_is_entered_only_for_a_card_that_no_other_shows() -> None:
    pods = tuple(gpu_pod(f"p{number}", "n1") for number in range(5))
    server = ExecServer(**{f"p{number}": line(0) for number in range(5)})

    enter(server, cluster_of(sliced("n1"), pods=pods))

    assert len(server.asked) == 1


def test_no_pod_is_entered_where_an_agent_speaks() -> None:
    server = ExecServer(p=line(0))

    enter(server, cluster_of(seen("n1", (0, 0)), pods=(gpu_pod("p", "n1"),)))

    assert server.asked == []


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(gpu_pod("p", "n1", phase="Succeeded"), id="finished"),
        pytest.param(gpu_pod("p", "n1", phase="Pending"), id="not started"),
        pytest.param(
            gpu_pod("p", "n1", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="terminating"
        ),
    ],
)
def test_pods_that_do_not_run_are_not_entered(pod: PodObject) -> None:
    server = ExecServer(p=line(0))

    enter(server, cluster_of(sliced("n1"), pods=(pod,)))

    assert server.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(127, id="no nvidia-smi in it"),
        pytest.param("nonsense\n", id="another program"),
        pytest.param("", id="no card"),
        pytest.param(line(0, used="[N/A]", busy="[N/A]"), id="not told"),
    ],
)
def test_an_answer_that_tells_nothing_leaves_the_card_unseen(answer: str | int) -> None:
    cluster = enter(ExecServer(p=answer), cluster_of(sliced("n1"), pods=(gpu_pod("p", "n1"),)))

    [card] = cards(cluster)

    assert (card.has_metrics, card.memory_used_mb) == (False, None)


def test_one_card_that_tells_nothing_does_not_spoil_the_others() -> None:
    text = line(0, "GPU-0", used="[N/A]") + line(1, "GPU-1", used=7)
    cluster = enter(ExecServer(p=text), cluster_of(unseen("n1", 2), pods=(gpu_pod("p", "n1", 2),)))

    assert [card.memory_used_mb for card in cards(cluster)] == [None, 7]


def test_who_may_not_enter_is_told_so_once_for_a_namespace() -> None:
    server = ExecServer()
    server.denied_namespaces = {"ns"}
    nodes = [sliced(f"n{number}") for number in range(40)]
    pods = tuple(gpu_pod(f"p{number}", f"n{number}") for number in range(40))

    cluster = enter(server, cluster_of(*nodes, pods=pods))

    assert len(server.asked) <= 16
    assert any("403" in problem for problem in cluster.problems)


def test_many_are_asked_at_once_but_not_all() -> None:
    names = [f"p{number}" for number in range(60)]
    server = ExecServer(**dict.fromkeys(names, line(0)))
    nodes = [sliced(f"n{number}") for number in range(60)]
    pods = tuple(gpu_pod(name, f"n{number}") for number, name in enumerate(names))

    cluster = enter(server, cluster_of(*nodes, pods=pods))

    assert sorted(server.asked) == sorted(names)
    assert server.most_at_once <= 16
    assert all(card.has_metrics for card in cards(cluster))


def test_an_answer_is_kept_for_a_while_and_no_answer_too() -> None:
    now = [0.0]
    keeper = LookKeeper(clock=lambda: now[0])
    server = ExecServer(p=line(0), q=127)
    nodes = (sliced("n1"), sliced("n2"))
    pods = (gpu_pod("p", "n1"), gpu_pod("q", "n2"))

    enter(server, cluster_of(*nodes, pods=pods), keeper=keeper)
    again = enter(server, cluster_of(*nodes, pods=pods), keeper=keeper)
    assert sorted(server.asked) == ["p", "q"]
    assert [card.memory_used_mb for card in cards(again)] == [4_000, None]

    now[0] = 16.0
    enter(server, cluster_of(*nodes, pods=pods), keeper=keeper)
    assert sorted(server.asked) == ["p", "p", "q", "q"]


def test_the_pods_of_others_can_be_left_alone() -> None:
    server = ExecServer(p=line(0))
    cluster = cluster_of(sliced("n1"), pods=(gpu_pod("p", "n1"),))

    async def look() -> None:
        async with server.running() as target:
            await OtherEyes(cluster, target, Sources(enter_pods=False)).look()

    asyncio.run(look())
    assert server.asked == []


# ── which card it is ─────────────────────────────────────────────────────────────────────────────


def reading(index: int, uuid: str) -> DeviceReading:
    return DeviceReading(uuid=uuid, index=index, vendor=Vendor.NVIDIA, used=Mib(index))


def node(*uuids: str) -> Node:
    cluster = cluster_of(seen("n1", *([(0, 0)] * len(uuids)))) if uuids[0].startswith("GPU-") else None
    found = (cluster or cluster_of(unseen("n1", len(uuids)))).fleet.node("n1")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("uuids", "told", "held", "expected"),
    [
        pytest.param(
            ("GPU-n1-0", "GPU-n1-1"),
            [(0, "GPU-n1-1")],
            ["GPU-n1-0"],
            {"GPU-n1-1": 0},
            id="by UUID, not by place",
        ),
        pytest.param(("GPU-n1-0", "GPU-n1-1"), [(0, "GPU-z")], ["GPU-n1-0"], {}, id="another node's card"),
        pytest.param(
            ("a", "b"), [(0, "GPU-y"), (1, "GPU-z")], [], {"n1/gpu-0": 0, "n1/gpu-1": 1}, id="all of them"
        ),
        pytest.param(
            ("a", "b"), [(0, "GPU-z")], ["n1/gpu-1"], {"n1/gpu-1": 0}, id="the one that its pod holds"
        ),
        pytest.param(("a", "b", "c"), [(0, "GPU-y"), (1, "GPU-z")], ["n1/gpu-1"], {}, id="nobody can tell"),
    ],
)
def test_a_reading_is_of_the_card_that_it_is_of(
    uuids: tuple[str, ...], told: list[tuple[int, str]], held: list[str], expected: dict[str, int]
) -> None:
    found = match_cards(node(*uuids), [reading(*each) for each in told], held)

    assert {uuid: each.index for uuid, each in found.items()} == expected


# ── exporters and this machine ───────────────────────────────────────────────────────────────────


def look(cluster: GpuCluster, sources: Sources, **parts: Any) -> GpuCluster:
    asyncio.run(OtherEyes(cluster, NOWHERE, sources, keeper=LookKeeper(), **parts).look())
    return cluster


def test_an_exporter_is_asked_before_any_pod() -> None:
    page = "\n".join(
        f'DCGM_FI_DEV_{name}{{gpu="0",UUID="GPU-z",Hostname="n1"}} {value}'
        for name, value in (("FB_USED", 100), ("GPU_UTIL", 3), ("GPU_TEMP", 40))
    )
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=page))
    sources = Sources(observations="dcgm=http://{node}:9400/metrics", this_machine=False)

    cluster = look(cluster_of(sliced("n1"), pods=(gpu_pod("p", "n1"),)), sources, transport=transport)

    [card] = cards(cluster)
    assert (card.memory_used_mb, card.temperature_c, card.source) == (100, 40, "DCGM exporter")
    assert cluster.problems == []  # nobody tried to enter a pod of a server that is not there


def test_an_exporter_makes_an_empty_node_known_free() -> None:
    page = 'DCGM_FI_DEV_FB_USED{gpu="0",Hostname="n1"} 0\nDCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="n1"} 0'
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=page))
    sources = Sources(observations="dcgm=http://dcgm:9400/metrics", this_machine=False)

    [card] = cards(look(cluster_of(unseen("n1", 1)), sources, transport=transport))

    assert card.state == "known-free"


def test_an_exporter_that_fails_is_a_problem_and_no_news() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(500))
    sources = Sources(observations="prometheus=http://prometheus:9090", this_machine=False)

    cluster = look(cluster_of(unseen("n1", 1)), sources, transport=transport)

    assert [card.state for card in cards(cluster)] == ["unknown"]
    assert any("Prometheus" in problem for problem in cluster.problems)


def test_a_wrong_list_of_exporters_is_refused() -> None:
    with pytest.raises(RequestError, match="observations"):
        OtherEyes(cluster_of(unseen("n1", 1)), NOWHERE, Sources(observations="hearsay=x"))


def test_the_node_that_this_runs_on_is_read_through_its_own_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here there is no NVML, and nvidia-smi is a script."""
    program = tmp_path / "nvidia-smi"
    told = "0, GPU-own, NVIDIA A100-40GB, 00000000:3B:00.0, 40960, 512, 0, 7, 44, Disabled, 0, 0"
    program.write_text(f'#!/bin/sh\ncase "$1" in --query-gpu*) echo "{told}";; esac\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    options = ProbeOptions(root=tmp_path, driver_roots=(), timeout_s=30.0)

    cluster = look(cluster_of(unseen(socket.gethostname(), 1)), Sources(), probes=options)

    [card] = cards(cluster)
    assert (card.memory_used_mb, card.utilization_percent) == (512, 7)
    assert (card.source, card.state) == ("this machine's driver", "known-free")


def test_a_machine_whose_driver_cannot_be_read_says_so_and_stays_unknown(tmp_path: Path) -> None:
    options = ProbeOptions(root=tmp_path, driver_roots=(), timeout_s=30.0)

    cluster = look(cluster_of(unseen(socket.gethostname(), 1)), Sources(), probes=options)

    assert [card.state for card in cards(cluster)] == ["unknown"]
    assert any("NVML" in problem or "nvidia" in problem.lower() for problem in cluster.problems)
