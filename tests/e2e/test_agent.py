"""The agent as a process: real NVML bindings on a stand-in library, real API server, shipped rights."""

import datetime as dt
import os
import re
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.agent import agent_token, install_agent, run_agent
from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import soonest, wait_until
from fakenvml import Card, FakeNvml

REPORTS = "/apis/vramline.io/v1alpha1/gpureports"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        install_agent(client)
        yield client


@pytest.fixture
def node(admin: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A Node of the test's own."""
    name = f"n{abs(hash(request.node.nodeid)) % 10**8}"
    admin.post("/api/v1/nodes", json=gpu_node(name)).raise_for_status()
    return name


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(
        tmp_path, Card("GPU-1", used=1000, reserved=500, processes={os.getpid(): 1000}), Card("GPU-2")
    )


def status_of(admin: httpx.Client, node: str) -> dict[str, Any]:
    answer = admin.get(f"{REPORTS}/{node}")
    status: dict[str, Any] = answer.json().get("status", {}) if answer.is_success else {}
    return status


def card_of(admin: httpx.Client, node: str, number: int = 0) -> dict[str, Any]:
    gpus = status_of(admin, node).get("gpus") or [{}, {}]
    card: dict[str, Any] = gpus[number]
    return card


def seen_at(admin: httpx.Client, node: str) -> dt.datetime | None:
    text = status_of(admin, node).get("observedAt")
    return None if text is None else dt.datetime.fromisoformat(text)


def seconds_until(is_so: Callable[[], bool], what: str) -> float:
    began = time.monotonic()
    wait_until(is_so, what)
    return time.monotonic() - began


# ── the report ───────────────────────────────────────────────────────────────────────────────────────
def test_a_report_appears_and_belongs_to_the_node(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    env = {"HAMI_REALTIME_CHECK_MODE": "warning"}
    with run_agent(plane, node, nvml, token=agent_token(admin, node), env=env) as agent:
        wait_until(lambda: len(status_of(admin, node).get("gpus", [])) == 2, "the report")
        report = admin.get(f"{REPORTS}/{node}").json()
        written = re.compile(r'vramline_agent_reports_total\{outcome="written"\} [1-9]')
        wait_until(lambda: bool(written.search(agent.figures())), "the report to be counted")
        figures = agent.figures()

    assert report["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert report["status"]["realtimeCheck"] == "warning"
    first = report["status"]["gpus"][0]
    assert {
        "uuid": "GPU-1",
        "index": 0,
        "totalMiB": 81559,
        "reservedMiB": 500,
        "usedMiB": 1000,
        "health": "Healthy",
        "memorySource": "nvml",
        "processes": [{"pid": os.getpid(), "usedMiB": 1000, "podUID": None}],
    }.items() <= first.items()
    assert 'vramline_agent_gpu_mib{gpu="GPU-1",part="used"} 1000.0' in figures


def test_a_change_of_a_card_is_reported_within_two_seconds(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    with run_agent(plane, node, nvml, token=agent_token(admin, node)):
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 1000, "the report")

        def change_to(used: int) -> float:
            nvml.set(Card("GPU-1", used=used), Card("GPU-2"))
            return seconds_until(lambda: card_of(admin, node)["usedMiB"] == used, "the change")

        def slowest_of_three(number: int) -> float:
            return max(change_to(number + used) for used in (5000, 200, 9000))

        assert soonest(slowest_of_three, within_s=2.0) < 2.0


def test_one_card_that_hangs_is_unknown_and_the_others_stay_known(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    with run_agent(plane, node, nvml, token=agent_token(admin, node)):
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 1000, "the report")
        nvml.set(Card("GPU-1", used=1000, hangs=("memory",)), Card("GPU-2", used=700))
        wait_until(lambda: card_of(admin, node, 1).get("usedMiB") == 700, "the other card's change")
        wait_until(lambda: "usedMiB" not in card_of(admin, node), "the unknown")
        hanging = card_of(admin, node)
        nvml.set(Card("GPU-1", used=800), Card("GPU-2", used=700))
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 800, "the answer")

    assert (hanging["totalMiB"], hanging["uuid"]) == (81559, "GPU-1")
    assert hanging["health"] in {"Suspect", "Unhealthy"}
    assert "TIMEOUT" in hanging["note"]
    assert "processes" not in hanging


def test_a_fault_that_the_driver_reports_makes_the_card_unhealthy(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    with run_agent(plane, node, nvml, token=agent_token(admin, node)):
        wait_until(lambda: card_of(admin, node).get("health") == "Healthy", "the report")
        nvml.report_xid("GPU-1", 79)
        wait_until(lambda: card_of(admin, node).get("health") == "Unhealthy", "the fault")

    assert "Xid 79" in card_of(admin, node)["note"]
    assert card_of(admin, node, 1)["health"] == "Healthy"


def test_without_a_driver_the_report_lists_no_card_and_says_why(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    nvml.set(init=9)
    with run_agent(plane, node, nvml, token=agent_token(admin, node)):
        wait_until(lambda: bool(status_of(admin, node).get("notes")), "the note")

    status = status_of(admin, node)
    assert "gpus" not in status
    assert "DRIVER_NOT_LOADED" in status["notes"][0]


# ── killed, stopped, restarted ───────────────────────────────────────────────────────────────────────
def test_a_killed_agent_leaves_its_last_look_with_its_time_and_the_next_one_goes_on(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    token = agent_token(admin, node)
    with run_agent(plane, node, nvml, token=token) as agent:
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 1000, "the report")
        agent.child.signal(signal.SIGKILL)
        wait_until(agent.child.has_ended, "the end")
    before, uid = seen_at(admin, node), admin.get(f"{REPORTS}/{node}").json()["metadata"]["uid"]
    nvml.set(Card("GPU-1", used=3000), Card("GPU-2"))
    with run_agent(plane, node, nvml, token=token):
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 3000, "the next agent's report")

    after = seen_at(admin, node)
    assert before is not None
    assert after is not None
    assert after > before
    assert admin.get(f"{REPORTS}/{node}").json()["metadata"]["uid"] == uid


def test_an_agent_that_stands_still_shows_nothing_as_fresh(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    with run_agent(
        plane, node, nvml, token=agent_token(admin, node), options=["--report-interval", "1s"]
    ) as agent:
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 1000, "the report")
        agent.child.signal(signal.SIGSTOP)
        stopped = dt.datetime.now(dt.UTC)
        time.sleep(2.5)  # long enough for two more reports, if it could
        silent = seen_at(admin, node)
        agent.child.signal(signal.SIGCONT)
        wait_until(lambda: (seen_at(admin, node) or stopped) > stopped, "the next report")

    assert silent is not None
    assert silent <= stopped


def test_an_agent_ends_at_once_when_it_is_told_to(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    with run_agent(plane, node, nvml, token=agent_token(admin, node)) as agent:
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 1000, "the report")
        nvml.set(Card("GPU-1", used=1000, hangs=("memory",)), Card("GPU-2"))
        wait_until(lambda: "usedMiB" not in card_of(admin, node), "a call that hangs")
        agent.child.signal(signal.SIGTERM)
        took = seconds_until(agent.child.has_ended, "the end")
        assert agent.has_logged("agent.stopped")

    assert took < 5.0


def test_while_the_api_server_is_away_samples_go_on_and_the_newest_is_written_after_it(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml
) -> None:
    (server,) = [child for child in plane.children if child.name == "kube-apiserver"]
    with run_agent(plane, node, nvml, token=agent_token(admin, node)) as agent:
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 1000, "the report")
        server.signal(signal.SIGSTOP)
        try:
            for used in (5000, 6000, 7000):
                nvml.set(Card("GPU-1", used=used), Card("GPU-2"))
                part = f'vramline_agent_gpu_mib{{gpu="GPU-1",part="used"}} {used}.0'
                wait_until(lambda part=part: part in agent.figures(), "a sample", children=(agent.child,))  # type: ignore[misc]
        finally:
            server.signal(signal.SIGCONT)
        wait_until(lambda: card_of(admin, node).get("usedMiB") == 7000, "the newest report")


# ── who may say what ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("whose", ["another node's", "of no pod", "nobody's"])
def test_a_report_with_a_wrong_token_is_refused(
    plane: ControlPlane, admin: httpx.Client, node: str, nvml: FakeNvml, whose: str
) -> None:
    other = f"{node}-other"
    admin.post("/api/v1/nodes", json=gpu_node(other)).raise_for_status()
    tokens: dict[str, Callable[[], str]] = {
        "another node's": lambda: agent_token(admin, other),
        "of no pod": lambda: agent_token(admin, None),
        "nobody's": lambda: "abc.def.ghi",
    }
    with run_agent(plane, node, nvml, token=tokens[whose]()) as agent:
        wait_until(lambda: agent.has_logged("report.failed"), "the refusal", children=(agent.child,))
        assert agent.is_healthy(), "it samples all the same"

    assert admin.get(f"{REPORTS}/{node}").status_code == httpx.codes.NOT_FOUND


@contextmanager
def as_agent(plane: ControlPlane, token: str) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=plane.url, verify=context, headers=headers, timeout=30.0) as client:
        yield client


def test_an_agent_changes_nothing_of_any_node(plane: ControlPlane, admin: httpx.Client, node: str) -> None:
    path, change = f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"a": "b"}}}
    with as_agent(plane, agent_token(admin, node)) as agent:
        wait_until(lambda: agent.get(path).is_success, "its rights")
        answers = [
            agent.patch(path, json=change, headers=MERGE),
            agent.patch(f"{path}/status", json={"status": {}}, headers=MERGE),
            agent.delete(path),
        ]

    assert {answer.status_code for answer in answers} == {httpx.codes.FORBIDDEN}
