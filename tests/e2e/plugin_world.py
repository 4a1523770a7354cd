"""A real node with the device plugin beside the real scheduler; what its cards say is up to the test."""

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from msgspec.structs import replace

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import extender_configuration, report_cards, run_scheduler
from json_patch import apply_patch
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import busybox_pod
from vramline.agent.plugin import PluginOptions, run_plugin
from vramline.agent.plugin_sources import plugin_options, real_sources
from vramline.agent.pod_resources import HeldDevice, list_held_devices
from vramline.kube.client import KubeClient
from vramline.kube.target import find_target
from vramline.model.gpu import Health
from vramline.settings import Settings
from vramline.wire.admission import AdmissionOptions, Admitted, Backend, plan_admission
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess

__all__ = [
    "PODS",
    "SLOT",
    "Cards",
    "PluginWorld",
    "SlotNode",
    "admitted",
    "container_of",
    "plugin_world",
    "start_schedulers",
    "waiting_for",
]

PODS = "/api/v1/namespaces/default/pods"
SLOT = "vramline.io/gpu"
TOTAL = 24_000


class Cards:
    """The cards of the node as its agent sees them: `report` is replaced, never changed."""

    def __init__(self, node: str, count: int) -> None:
        self.uuids = [f"GPU-{node}-{number}" for number in range(count)]
        cards = tuple(_idle(uuid) for uuid in self.uuids)
        self.report = GpuReport(node=node, gpus=cards)

    def newest(self) -> GpuReport:
        return replace(self.report, observed_at=time.time())

    async def look(self, _gpus: Collection[str]) -> GpuReport:
        return self.newest()

    def set_health(self, health: Health) -> None:
        """Change the first card's."""
        first, *rest = self.report.gpus or ()
        self.report = replace(self.report, gpus=(replace(first, health=health), *rest))

    def occupy(self, mib: int) -> None:
        """Let a stranger use this much of every card."""
        strangers = (ReportedProcess(pid=1, used_mib=mib, pod_uid=None),) if mib else ()
        cards = tuple(replace(card, used_mib=mib, processes=strangers) for card in self.report.gpus or ())
        self.report = replace(self.report, gpus=cards)


def _idle(uuid: str) -> ReportedGpu:
    return ReportedGpu(uuid=uuid, total_mib=TOTAL, used_mib=0, health=Health.HEALTHY, processes=())


@dataclass(frozen=True)
class SlotNode:
    """A node that offers slots, as its kubelet and the API server tell of them."""

    admin: httpx.Client
    node: RealNode

    def resources(self) -> tuple[int, int]:
        """Slots that the node has, and that it may hand out."""
        status = self.admin.get(f"/api/v1/nodes/{self.node.name}").json()["status"]
        return int(status["capacity"].get(SLOT, 0)), int(status["allocatable"].get(SLOT, 0))

    def wait_for_resources(self, capacity: int, allocatable: int) -> None:
        wait_until(
            lambda: self.resources() == (capacity, allocatable),
            f"{allocatable} of {capacity} slots",
            seconds=90,
        )

    def create(self, pod: dict[str, Any]) -> None:
        self.admin.post(PODS, json=pod).raise_for_status()

    def end_container(self, pod: str) -> None:
        """Let the first process of a pod's container end; kubelet may lose sight of who did it."""
        with contextlib.suppress(httpx.HTTPStatusError):
            self.node.run("default", pod, "kill", "1")

    def held(self) -> tuple[HeldDevice, ...]:
        """What kubelet says of slots and pods."""
        found = asyncio.run(list_held_devices(self.node.kubelet_folder / "pod-resources" / "kubelet.sock"))
        return tuple(each for each in found if each.resource == SLOT)

    def promised(self) -> dict[str, str]:
        """Card by pod, as the ledger says."""
        claims = self.admin.get(f"/apis/vramline.io/v1alpha1/gpuledgers/{self.node.name}").json()["spec"][
            "claims"
        ]
        return {claim["pod"]: gpu for gpu, on_card in claims.items() for claim in on_card}


@dataclass(frozen=True)
class PluginWorld(SlotNode):
    """All of it, running."""

    cards: Cards
    options: PluginOptions

    def wait_for_registration(self) -> None:
        """Wait until the plugin has a socket in the folder that kubelet has wiped."""
        wait_until(lambda: any(self.options.folder.glob("vramline-gpu-*.sock")), "the plugin's socket")

    def report_again(self) -> None:
        """Write the agent's report with the time of now."""
        report_cards(self.admin, self.node.name, [{"totalMiB": TOTAL, "usedMiB": 0, "processes": []}] * 2)

    def promised_after_a_look(self) -> dict[str, str]:
        """Let the agent report once more, then read the ledger."""
        self.report_again()
        return self.promised()


def admitted(name: str, mib: int, script: str = "", **annotations: str) -> dict[str, Any]:
    """Return a pod as the webhook stores it with this backend."""
    asks = {"vramline.io/vram": str(mib), **annotations}
    pod = busybox_pod(name, script, annotations=asks)
    plan = plan_admission(pod, operation="CREATE", options=AdmissionOptions(backend=Backend.PLUGIN))
    assert isinstance(plan, Admitted)
    return apply_patch(pod, plan.patch)


def waiting_for(pod: dict[str, Any]) -> tuple[str, str]:
    """Why the container of a pod waits: kubelet's word for it, and the text."""
    [status] = pod["status"].get("containerStatuses") or [{"state": {}}]
    waiting = status["state"].get("waiting") or {}
    return waiting.get("reason", ""), waiting.get("message", "")


def container_of(pod: dict[str, Any]) -> tuple[str, int]:
    """Tell a pod's container from any that comes after it: its id, and how often it was started again."""
    [status] = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


@contextmanager
def start_schedulers(plane: ControlPlane) -> Iterator[None]:
    """Run Vramline's scheduler, and a kube-scheduler that counts slots and asks it."""
    with run_scheduler(plane) as vramline:
        configuration = extender_configuration(vramline.port)
        configuration["extenders"][0]["managedResources"].append({"name": SLOT, "ignoredByScheduler": False})
        plane.start_scheduler(configuration)
        yield


@contextmanager
def plugin_world(plane: ControlPlane, programs: Programs) -> Iterator[PluginWorld]:
    """Run a node with two cards, the plugin, kube-scheduler and Vramline."""
    with plane.client() as admin, real_node(plane, programs) as node, start_schedulers(plane):
        cards = Cards(node.name, 2)
        options = plugin_options(Settings(), node.kubelet_folder / "device-plugins")
        world = PluginWorld(admin, node, cards, options)
        world.report_again()
        with _plugin(plane, node, cards, options):
            yield world


@contextmanager
def _plugin(plane: ControlPlane, node: RealNode, cards: Cards, options: PluginOptions) -> Iterator[None]:
    """Run the plugin in a thread with an event loop of its own."""
    ready, stops = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def run() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        ready.set()
        target = find_target({}, kubeconfig=plane.folder / "admin.kubeconfig")
        async with KubeClient(target, rng=random.Random(7)) as client:
            socket = node.kubelet_folder / "pod-resources" / "kubelet.sock"
            sources = real_sources(
                client,
                node.name,
                newest=cards.newest,
                look=cards.look,
                pod_resources=socket,
                starts=Counter(),
            )
            await run_plugin(sources, options, stop)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        ready.wait(60.0)
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(60.0)
