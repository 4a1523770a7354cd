"""The real node of the tests itself: real, quick, beside others, and gone when its test is gone."""

import ipaddress
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from realnode.cgroups import hierarchies
from realnode.machine import Programs
from realnode.node import RealNode, real_node
from realnode.pods import busybox_pod, is_running

TESTS = Path(__file__).parent.parent
PODS = "/api/v1/namespaces/default/pods"
SYSCTLS = [
    Path("/proc/sys") / name for name in ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
]


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, programs: Programs) -> Iterator[tuple[RealNode, RealNode]]:
    with (
        real_node(plane, programs) as first,
        real_node(plane, programs, name="second", labels={"kind": "spare"}) as second,
    ):
        yield first, second


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        yield client


def start(admin: httpx.Client, node: RealNode, pod: dict[str, Any]) -> dict[str, Any]:
    pod["spec"]["nodeName"] = node.name
    admin.post(PODS, json=pod).raise_for_status()
    return wait_for_pod(admin, "default", pod["metadata"]["name"], is_running)


def test_two_nodes_of_one_machine_run_their_own_pods(
    admin: httpx.Client, nodes: tuple[RealNode, RealNode]
) -> None:
    addresses = set()
    for node in nodes:
        pod = start(admin, node, busybox_pod(f"on-{node.name}", "echo here is $HOSTNAME"))

        assert node.words("default", f"on-{node.name}") == f"here is on-{node.name}\n"
        assert node.run("default", f"on-{node.name}", "cat", "/proc/1/comm") == "sh\n"
        assert node.processes_of(pod["metadata"]["uid"])
        addresses.add(pod["status"]["podIP"])
    assert len(addresses) == 2


def test_labels_are_the_nodes_own(admin: httpx.Client, nodes: tuple[RealNode, RealNode]) -> None:
    found = admin.get("/api/v1/nodes", params={"labelSelector": "kind=spare"}).json()["items"]

    assert [each["metadata"]["name"] for each in found] == [nodes[1].name]


def test_kubectl_reads_the_log_of_a_pod_on_localhost(
    admin: httpx.Client, plane: ControlPlane, nodes: tuple[RealNode, RealNode]
) -> None:
    start(admin, nodes[0], busybox_pod("talker", "echo words"))
    nodes[0].words("default", "talker")
    command = [plane.commands["kubectl"], f"--kubeconfig={plane.folder / 'admin.kubeconfig'}"]
    command += ["logs", "--insecure-skip-tls-verify-backend", "talker"]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "words\n"


def test_a_node_may_change_no_other_node(plane: ControlPlane, nodes: tuple[RealNode, RealNode]) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    change = {"metadata": {"annotations": {"a": "b"}}}
    with plane.client(nodes[0].name) as kubelet:
        own = kubelet.patch(f"/api/v1/nodes/{nodes[0].name}", json=change, headers=headers)
        other = kubelet.patch(f"/api/v1/nodes/{nodes[1].name}", json=change, headers=headers)

    assert (own.status_code, other.status_code) == (httpx.codes.OK, httpx.codes.FORBIDDEN)


def test_nothing_is_left_of_a_node_that_is_stopped(
    admin: httpx.Client, plane: ControlPlane, programs: Programs
) -> None:
    before = [path.read_text() for path in SYSCTLS]

    with real_node(plane, programs, name="third") as node:
        pod = start(admin, node, busybox_pod("on-third"))
        assert is_routed(pod["status"]["podIP"])
        assert processes_that_name(str(node.folder))

    check_that_nothing_is_left(node.folder, node.cgroup)
    assert not is_routed(pod["status"]["podIP"])
    assert [path.read_text() for path in SYSCTLS] == before


@pytest.mark.usefixtures("programs")
def test_nothing_is_left_of_a_node_whose_test_is_killed(plane: ControlPlane) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from controlplane.commands import Commands\n"
        "from controlplane.plane import control_plane\n"
        "from realnode.machine import find_programs\n"
        "from realnode.node import real_node\n"
        "with control_plane(Commands(Path(sys.argv[1]))) as plane:\n"
        "    with real_node(plane, find_programs()) as node:\n"
        "        print(node.folder, node.cgroup, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program, str(plane.commands.folder)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdout is not None
    folder, cgroup = runner.stdout.readline().split()
    assert processes_that_name(folder)
    assert [each for each in hierarchies() if (each / cgroup).is_dir()]

    runner.send_signal(signal.SIGKILL)
    runner.communicate()

    wait_until(lambda: not Path(folder).exists(), "the end of the folder", seconds=60.0)
    check_that_nothing_is_left(Path(folder), cgroup)


def check_that_nothing_is_left(folder: Path, cgroup: str) -> None:
    assert not folder.exists()
    wait_until(lambda: not processes_that_name(str(folder)), "the end of the keeper", seconds=60.0)
    assert [each for each in hierarchies() if (each / cgroup).exists()] == []
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


def is_routed(address: str) -> bool:
    """Whether the kernel knows a way to this address; its table has the bytes of an address in host order."""
    as_kept = f"{int.from_bytes(ipaddress.ip_address(address).packed, 'little'):08X}"
    return as_kept in Path("/proc/net/route").read_text()


def processes_that_name(folder: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in command:
            found.append(command)
    return found
