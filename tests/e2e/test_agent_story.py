"""The whole chain with the real agent: card, agent, stream, scheduler, kube-scheduler, and the bell."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.agent import RunningAgent, agent_token, install_agent, run_agent
from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import free_port, soonest, wait_until
from controlplane.vramline import VramlineProcess, extender_configuration, gpu_pod, run_scheduler
from fakenvml import Card, FakeNvml

NODE = "n1"
TOTAL = 8_192
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
BUNDLE = "/api/v1/namespaces/vramline-agent/configmaps"
STREAM, LOOK = "agent's stream", "live look"


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        install_agent(client)
        client.post(BUNDLE, json={"metadata": {"name": "vramline-ca"}}).raise_for_status()
        secrets = "/api/v1/namespaces/vramline-system/secrets"
        client.post(secrets, json={"metadata": {"name": "vramline-webhook-tls"}}).raise_for_status()
        node = gpu_node(NODE, allocatable={"nvidia.com/gpu": "1"})
        client.post("/api/v1/nodes", json=node).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, admin: httpx.Client, port: int) -> Iterator[VramlineProcess]:
    with run_scheduler(plane, options=["--agent-listen", f"127.0.0.1:{port}", "--v", "4"]) as process:
        plane.start_scheduler(extender_configuration(process.port))
        wait_until(lambda: bool(bundle(admin)), "the bundle for the agents", children=(process.child,))
        yield process


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of this machine that belongs to no pod."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path, idle())


@pytest.fixture
def stream_options(admin: httpx.Client, tmp_path: Path, port: int) -> list[str]:
    """What kubelet would mount, and where the scheduler is."""
    (tmp_path / "ca.crt").write_text(bundle(admin))
    (tmp_path / "token").write_text(agent_token(admin, NODE, audience="vramline"))
    files = ["--ca-file", str(tmp_path / "ca.crt"), "--token-file", str(tmp_path / "token")]
    return ["--scheduler", f"127.0.0.1:{port}", *files]


@pytest.fixture(autouse=True)
def clean(admin: httpx.Client) -> Iterator[None]:
    yield
    admin.delete(PODS, params={"gracePeriodSeconds": 0}).raise_for_status()


def bundle(admin: httpx.Client) -> str:
    stored = admin.get(f"{BUNDLE}/vramline-ca").json()
    return str((stored.get("data") or {}).get("ca.crt", ""))


def idle() -> Card:
    return Card("GPU-n1", total=TOTAL)


def taken(pid: int) -> Card:
    return Card("GPU-n1", total=TOTAL, used=6_144, processes={pid: 6_144})


def card_of(vramline: VramlineProcess) -> dict[str, Any]:
    found: list[dict[str, Any]] = vramline.client.get("/api/v1/gpus").json()["gpus"]
    return next((each for each in found if each["uuid"] == "GPU-n1"), {})


def shows(vramline: VramlineProcess, used: int) -> bool:
    """Whether the newest word about the card is the agent's, and says so much."""
    card = card_of(vramline)
    return card.get("source") in {STREAM, LOOK} and card.get("used_mib") == used


def wakes(vramline: VramlineProcess) -> float:
    """How often kube-scheduler was told to try again."""
    lines = vramline.client.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith('vramline_wakes_total{result="sent"}')
    )


def create(admin: httpx.Client, name: str) -> None:
    admin.post(PODS, json=gpu_pod(name, 4_096)).raise_for_status()


def node_of(admin: httpx.Client, name: str) -> str:
    return str(admin.get(f"{PODS}/{name}").json()["spec"].get("nodeName", ""))


def notes_about(admin: httpx.Client, name: str) -> list[str]:
    return [
        each.get("note", "")
        for each in admin.get(EVENTS).json()["items"]
        if each["regarding"].get("name") == name and each["reportingController"] == "vramline.io/scheduler"
    ]


def is_refused(admin: httpx.Client, name: str) -> bool:
    conditions = admin.get(f"{PODS}/{name}").json()["status"].get("conditions", [])
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def test_memory_of_nobody_keeps_a_pod_waiting_and_its_end_binds_it_within_two_seconds(
    plane: ControlPlane,
    admin: httpx.Client,
    vramline: VramlineProcess,
    nvml: FakeNvml,
    stream_options: list[str],
    stranger: int,
) -> None:
    token = agent_token(admin, NODE)
    with run_agent(plane, NODE, nvml, token=token, options=stream_options) as agent:

        def wait_for_memory(number: int) -> float:
            name = f"waits-{number}"
            nvml.set(taken(stranger))
            wait_until(lambda: shows(vramline, 6_144), "a sample", children=(agent.child, vramline.child))
            create(admin, name)
            wait_until(lambda: is_refused(admin, name), "the refusal")
            wait_until(lambda: bool(notes_about(admin, name)), "the event")
            assert "short by 2,148 MiB" in notes_about(admin, name)[0], "4,096 − (8,192 − 100 − 6,144)"
            nvml.set(idle())
            began = time.monotonic()
            wait_until(lambda: node_of(admin, name) == NODE, "the pod to be bound", children=(agent.child,))
            took = time.monotonic() - began
            admin.delete(f"{PODS}/{name}", params={"gracePeriodSeconds": 0}).raise_for_status()
            wait_until(lambda: card_of(vramline)["held_mib"] == 0, "the release of what it held")
            return took

        assert soonest(wait_for_memory, within_s=2.0) < 2.0
    assert wakes(vramline) >= 1


def test_a_spike_after_the_last_sample_is_seen_by_the_look_at_bind(
    plane: ControlPlane,
    admin: httpx.Client,
    vramline: VramlineProcess,
    nvml: FakeNvml,
    stream_options: list[str],
    stranger: int,
) -> None:
    def looks(agent: RunningAgent) -> bool:
        return "vramline_agent_looks_total 0.0" not in agent.figures()

    options = [*stream_options, "--interval", "4s"]
    with run_agent(plane, NODE, nvml, token=agent_token(admin, NODE), options=options) as agent:
        wait_until(lambda: "streams 1.0" in agent.figures(), "the stream", children=(agent.child,))
        wait_until(lambda: shows(vramline, 0), "a sample", children=(agent.child, vramline.child))
        nvml.set(taken(stranger))  # the next sample is seconds away
        create(admin, "hurries")
        wait_until(lambda: looks(agent), "the look at bind", children=(agent.child,))
        wait_until(lambda: shows(vramline, 6_144), f"what the look saw, not {card_of(vramline)}")
        assert node_of(admin, "hurries") == ""
        nvml.set(idle())
        wait_until(lambda: node_of(admin, "hurries") == NODE, "the pod to be bound in the end")


def test_an_agent_that_is_killed_is_not_waited_for(
    plane: ControlPlane,
    admin: httpx.Client,
    vramline: VramlineProcess,
    nvml: FakeNvml,
    stream_options: list[str],
) -> None:
    with run_agent(plane, NODE, nvml, token=agent_token(admin, NODE), options=stream_options) as agent:
        wait_until(lambda: shows(vramline, 0), "a sample", children=(agent.child, vramline.child))
        wait_until(lambda: card_of(vramline)["held_mib"] == 0, "the release of what other tests held")
        os.kill(agent.child.pid, 9)
        wait_until(lambda: card_of(vramline).get("source") != STREAM, "the end of the stream's word")

    create(admin, "goes-by-the-report")
    wait_until(lambda: node_of(admin, "goes-by-the-report") == NODE, "the pod to be bound")
