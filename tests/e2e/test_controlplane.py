"""The test control plane itself: real, quick, and gone when its test is gone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.kubernetes import gpu_node, wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.sources import wanted_version

TESTS = Path(__file__).parent.parent


def test_it_is_the_version_that_is_wanted(plane: ControlPlane) -> None:
    with plane.client() as admin:
        assert admin.get("/version").json()["gitVersion"] == wanted_version()


def test_rbac_is_on(plane: ControlPlane) -> None:
    plane.issue_user("nobody", "nobody")
    with plane.client("nobody") as nobody:
        assert nobody.get("/api/v1/nodes").status_code == httpx.codes.FORBIDDEN


def test_kube_scheduler_binds_a_pod_to_a_fake_gpu_node(plane: ControlPlane) -> None:
    plane.start_scheduler({})
    with plane.client() as admin:
        admin.post("/api/v1/nodes", json=gpu_node("n1")).raise_for_status()
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        admin.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()

        assert (
            wait_for_pod(admin, "default", "p", lambda p: "nodeName" in p["spec"])["spec"]["nodeName"] == "n1"
        )


@pytest.mark.usefixtures("commands")
def test_nothing_outlives_a_test_run_that_is_killed(commands: Commands) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from controlplane.commands import Commands\n"
        "from controlplane.plane import control_plane\n"
        "with control_plane(Commands(Path(sys.argv[1]))) as plane:\n"
        "    print(*(child.pid for child in plane.children), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program, str(commands.folder)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdout is not None
    children = [Path(f"/proc/{pid}") for pid in runner.stdout.readline().split()]
    runner.send_signal(signal.SIGKILL)
    runner.communicate()

    assert len(children) == 2
    wait_until(lambda: not any(child.exists() for child in children), "the end of the children")
