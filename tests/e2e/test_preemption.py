"""Preemption through the real kube-scheduler: who has to go, who stays, and when the preemptor is bound."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import (
    VramlineProcess,
    add_gpu_node,
    apply_crds,
    extender_configuration,
    gpu_pod,
    report_cards,
    run_scheduler,
)

TOTAL = 32_600
PRIORITIES = {"least": 1, "low": 10, "middle": 50, "high": 1_000}
DEVICE = {"nvidia.com/gpu": "1"}
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        for name, value in PRIORITIES.items():
            client.post(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                json={"metadata": {"name": name}, "value": value},
            ).raise_for_status()
        client.post(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json={"metadata": {"name": "never"}, "value": 1_000, "preemptionPolicy": "Never"},
        ).raise_for_status()
        yield client


@pytest.fixture(scope="module", autouse=True)
def vramline(plane: ControlPlane, admin: httpx.Client) -> Iterator[VramlineProcess]:
    """Vramline and kube-scheduler, which counts devices as in an installation."""
    admin.get("/version").raise_for_status()
    with run_scheduler(plane) as process:
        configuration = extender_configuration(process.port)
        devices = {"name": "nvidia.com/gpu", "ignoredByScheduler": False}
        configuration["extenders"][0]["managedResources"].append(devices)
        plane.start_scheduler(configuration)
        yield process


class Machine:
    """A node with two cards, and the pods of one test on it."""

    def __init__(self, admin: httpx.Client, name: str, *, devices: int) -> None:
        self.admin, self.name = admin, name
        self.pods: dict[str, dict[str, Any]] = {}
        admin.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
        add_gpu_node(admin, name, TOTAL, TOTAL, advertised=devices)
        self.patch_node({"labels": {"kubernetes.io/hostname": name}})

    def patch_node(self, metadata: dict[str, Any]) -> None:
        path = f"/api/v1/nodes/{self.name}"
        self.admin.patch(path, json={"metadata": metadata}, headers=MERGE).raise_for_status()

    def create(
        self,
        name: str,
        mib: int | None,
        priority: str,
        *,
        card: int | None = None,
        asks: dict[str, str] | None = None,
    ) -> None:
        """Create a pod that wants so many MiB, and one device unless it `asks` for something else."""
        pod = gpu_pod(name, mib or 0)
        wanted = {**pod["spec"]["containers"][0]["resources"]["limits"], **(DEVICE if asks is None else asks)}
        if mib is None:
            del pod["metadata"]["annotations"]
            wanted = asks or {}
        pod["spec"]["containers"][0]["resources"] = {"limits": wanted, "requests": wanted}
        if card is not None:
            pod["metadata"]["annotations"]["nvidia.com/use-gpuuuid"] = f"GPU-{self.name}-{card}"
        pod["spec"] |= {
            "nodeSelector": {"kubernetes.io/hostname": self.name},
            "priorityClassName": priority,
        }
        self.admin.post(self._path(""), json=pod).raise_for_status()

    def settle(self, name: str, mib: int | None, priority: str, **wish: Any) -> None:
        """Create a pod and wait until it is on the node."""
        self.create(name, mib, priority, **wish)
        pod = wait_for_pod(self.admin, self.name, name, lambda pod: "nodeName" in pod["spec"])
        self.pods[name] = {"uid": pod["metadata"]["uid"], "mib": mib or 0, "card": wish.get("card")}

    def report(self, *without: str) -> None:
        """Report the cards as an agent would while all pods run but these."""
        cards = []
        for card in range(2):
            running = [
                {"pid": 1, "usedMiB": pod["mib"], "podUID": pod["uid"]}
                for name, pod in self.pods.items()
                if pod["card"] == card and name not in without
            ]
            used = sum(process["usedMiB"] for process in running)
            cards.append({"totalMiB": TOTAL, "usedMiB": used, "processes": running})
        report_cards(self.admin, self.name, cards)

    def run(self, name: str) -> None:
        """Let a pod run as a kubelet would; budgets protect only what runs."""
        ready = {"type": "Ready", "status": "True"}
        patch = {"metadata": {"labels": {"app": name}}}
        self.admin.patch(self._path(f"/{name}"), json=patch, headers=MERGE).raise_for_status()
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        self.admin.patch(self._path(f"/{name}/status"), json=status, headers=headers).raise_for_status()

    def protect(self, name: str) -> None:
        """Give a running pod a budget that allows no disruption, with the status a controller would write."""
        path = f"/apis/policy/v1/namespaces/{self.name}/poddisruptionbudgets"
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}}
        self.admin.post(path, json={"metadata": {"name": name}, "spec": spec}).raise_for_status()
        counts = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        status = {"status": {**counts, "observedGeneration": 1}}
        self.admin.patch(f"{path}/{name}/status", json=status, headers=MERGE).raise_for_status()

    def events(self, pod: str, reason: str) -> int:
        """How many events of a reason there are about a pod, waiting for the first."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.name}/events"

        def count() -> int:
            items = self.admin.get(path).json()["items"]
            ours = [each for each in items if each["regarding"]["name"] == pod and each["reason"] == reason]
            return sum(each["reportingController"] == "vramline.io/scheduler" for each in ours)

        wait_until(lambda: count() > 0, f"the event {reason}")
        return count()

    def ask_to_leave(self, name: str) -> None:
        """Delete a pod politely: without a kubelet it stays, marked as leaving."""
        self.admin.delete(self._path(f"/{name}")).raise_for_status()

    def end(self, name: str) -> None:
        """Let a pod's object go, as a kubelet does once its containers ended."""
        self.admin.delete(self._path(f"/{name}"), params={"gracePeriodSeconds": 0}).raise_for_status()

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(self._path(f"/{name}")).json()
        return found

    def leaving(self) -> set[str]:
        """The pods whose deletion was asked for."""
        listed = self.admin.get(self._path("")).json()["items"]
        return {pod["metadata"]["name"] for pod in listed if "deletionTimestamp" in pod["metadata"]}

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.admin.get(self._path("")).json()["items"]}

    def told(self, name: str) -> str:
        """Why a pod waits, in kube-scheduler's words."""
        conditions = self.pod(name)["status"].get("conditions", [])
        return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

    def _path(self, rest: str) -> str:
        return f"/api/v1/namespaces/{self.name}/pods{rest}"


def attempts(vramline: VramlineProcess, pod: str) -> int:
    """How often nothing was found for a pod."""
    decisions = vramline.client.get("/api/v1/decisions").json()["decisions"]
    return sum(decision["pod"] == pod for decision in decisions)


def test_exactly_the_pod_whose_memory_makes_room_is_evicted(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    machine = Machine(admin, "full", devices=3)
    machine.settle("other-card", 2_000, "least", card=0)
    machine.settle("more-important", 22_000, "middle", card=0)
    machine.settle("in-the-way", 24_000, "low", card=1)
    machine.settle("without-gpu", None, "least")
    machine.report()

    machine.create("new", 16_000, "high")

    # kube-scheduler itself would evict `other-card`: the least important one with a device.
    wait_until(lambda: bool(machine.leaving()), "an eviction")
    wait_for_pod(admin, "full", "new", lambda pod: pod["status"].get("nominatedNodeName") == "full")
    assert machine.leaving() == {"in-the-way"}

    machine.end("in-the-way")
    before = attempts(vramline, "full/new")
    machine.report()
    wait_until(lambda: attempts(vramline, "full/new") > before, "another attempt while the memory is in use")
    assert "nodeName" not in machine.pod("new")["spec"]
    assert machine.pod("new")["status"]["nominatedNodeName"] == "full"

    def is_bound_after_report() -> bool:
        machine.report("in-the-way")
        return "nodeName" in machine.pod("new")["spec"]

    wait_until(is_bound_after_report, "the new pod to be bound once the memory is free")
    told = json.loads(machine.pod("new")["metadata"]["annotations"]["vramline.io/allocation"])
    assert told["gpus"][0]["uuid"] == "GPU-full-1"
    assert machine.leaving() == set()
    assert machine.names() == {"other-card", "more-important", "without-gpu", "new"}


def test_a_pod_that_leaves_anyway_is_waited_for(admin: httpx.Client) -> None:
    machine = Machine(admin, "patient", devices=2)
    machine.settle("stays", 24_000, "least", card=0)
    machine.settle("leaves", 24_000, "low", card=1)
    machine.report()
    machine.ask_to_leave("leaves")

    machine.create("new", 16_000, "high")

    wait_for_pod(admin, "patient", "new", lambda pod: pod["status"].get("nominatedNodeName") == "patient")
    assert machine.leaving() == {"leaves"}


def test_who_is_evicted_for_cpu_goes_along_with_who_is_evicted_for_memory(admin: httpx.Client) -> None:
    machine = Machine(admin, "busy", devices=100)
    machine.settle("cpu", None, "least", asks={"cpu": "60"})
    machine.settle("in-the-way", 24_000, "low", card=0, asks={})
    machine.settle("more-important", 24_000, "middle", card=1, asks={})
    machine.report()

    machine.create("new", 16_000, "high", asks={"cpu": "10"})

    wait_for_pod(admin, "busy", "new", lambda pod: pod["status"].get("nominatedNodeName") == "busy")
    wait_until(lambda: len(machine.leaving()) > 1, "two evictions")
    assert machine.leaving() == {"cpu", "in-the-way"}


def test_nobody_is_evicted_where_no_less_important_pod_is_in_the_way(admin: httpx.Client) -> None:
    machine = Machine(admin, "held", devices=3)
    machine.settle("small", 2_000, "least", card=0)
    machine.settle("first", 22_000, "high", card=0)
    machine.settle("second", 24_000, "high", card=1)
    machine.report()

    machine.create("new", 16_000, "high")

    wait_until(lambda: "preemption" in machine.told("new"), "a verdict")
    assert machine.leaving() == set()
    assert "nominatedNodeName" not in machine.pod("new")["status"]


# ── VRAM alone is short: kube-scheduler sees no victim, and Vramline evicts ──────────────────────────


def test_where_vram_alone_is_short_exactly_who_is_in_the_way_goes_and_nobody_takes_the_place(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    machine = Machine(admin, "sliced", devices=100)
    machine.settle("in-the-way", 24_000, "low", card=0, asks={})
    machine.settle("more-important", 31_000, "high", card=1, asks={})
    machine.report()

    machine.create("new", 30_000, "high", asks={})

    # Vramline waits for a moment before it evicts, and once it has, kube-scheduler says something else.
    nobody = "expected at least one victim pod"
    wait_until(lambda: nobody in machine.told("new"), "kube-scheduler to find nobody")
    wait_until(lambda: bool(machine.leaving()), "an eviction")
    assert machine.leaving() == {"in-the-way"}
    wait_for_pod(admin, "sliced", "new", lambda pod: pod["status"].get("nominatedNodeName") == "sliced")
    assert machine.events("new", "Preempting") == 1
    assert machine.events("in-the-way", "Preempted") == 1

    # 8,500 MiB are free beside the pod that leaves, and the new one needs them too.
    machine.create("thief", 8_000, "least", asks={})
    wait_until(lambda: "KeptForAnother" in machine.told("thief"), "a refusal")

    before = attempts(vramline, "sliced/new")
    machine.report()
    machine.end("in-the-way")
    wait_until(lambda: attempts(vramline, "sliced/new") > before, "another attempt while the memory is used")
    assert "nodeName" not in machine.pod("new")["spec"]

    def is_bound_after_report() -> bool:
        machine.report("in-the-way")
        return "nodeName" in machine.pod("new")["spec"]

    wait_until(is_bound_after_report, "the new pod to be bound once the memory is free")
    told = json.loads(machine.pod("new")["metadata"]["annotations"]["vramline.io/allocation"])
    assert told["gpus"][0]["uuid"] == "GPU-sliced-0"
    assert "nodeName" not in machine.pod("thief")["spec"]
    assert machine.leaving() == set()
    assert "vramline_evictions_total" in vramline.client.get("/metrics").text


def test_a_budget_is_honoured_and_another_pod_goes_instead(admin: httpx.Client) -> None:
    machine = Machine(admin, "guarded", devices=100)
    machine.settle("protected", 24_000, "least", card=0, asks={})
    machine.settle("unprotected", 24_000, "middle", card=1, asks={})
    machine.run("protected")
    machine.run("unprotected")
    machine.protect("protected")
    machine.report()

    machine.create("new", 16_000, "high", asks={})

    wait_until(lambda: bool(machine.leaving()), "an eviction")
    assert machine.leaving() == {"unprotected"}


def test_nobody_goes_for_a_pod_that_preempts_never_nor_where_a_budget_protects_all(
    admin: httpx.Client,
) -> None:
    polite, guarded = Machine(admin, "polite", devices=100), Machine(admin, "all-guarded", devices=100)
    for machine in (polite, guarded):
        machine.settle("first", 24_000, "low", card=0, asks={})
        machine.settle("second", 24_000, "low", card=1, asks={})
        machine.report()
    for name in ("first", "second"):
        guarded.run(name)
        guarded.protect(name)
    polite.create("new", 16_000, "never", asks={})
    guarded.create("new", 16_000, "high", asks={})
    for machine in (polite, guarded):
        wait_until(lambda machine=machine: "InsufficientVram" in machine.told("new"), "a verdict")  # type: ignore[misc]

    # Who was refused later is not served before them.
    later = Machine(admin, "later", devices=100)
    later.settle("first", 24_000, "low", card=0, asks={})
    later.settle("second", 24_000, "low", card=1, asks={})
    later.report()
    later.create("new", 16_000, "middle", asks={})
    wait_until(lambda: bool(later.leaving()), "an eviction elsewhere")

    assert polite.leaving() == guarded.leaving() == set()
    assert "nominatedNodeName" not in polite.pod("new")["status"]
    assert "nominatedNodeName" not in guarded.pod("new")["status"]
