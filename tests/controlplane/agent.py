"""`vramline agent` beside a test control plane: its account, its rights, its policies, and its process."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from controlplane.plane import ControlPlane
from controlplane.processes import Child, free_port, wait_until
from fakenvml import FakeNvml
from install.rendered import Object, rendered

__all__ = ["RunningAgent", "agent_token", "install_agent", "run_agent"]

NAME = "vramline-agent"
PODS = f"/api/v1/namespaces/{NAME}/pods"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
KINDS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{NAME}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}


def install_agent(admin: httpx.Client, *options: str) -> None:
    """Apply what is shipped for the agent, but for its pods."""
    for each in rendered("--with-agent", *options):
        if each["kind"] in KINDS and _is_agents(each):
            admin.post(KINDS[each["kind"]], json=each).raise_for_status()
    path = "/apis/vramline.io/v1alpha1/gpureports"
    wait_until(lambda: admin.get(path).is_success, "the kind GpuReport")


def _is_agents(each: Object) -> bool:
    if each["kind"] in {"CustomResourceDefinition", "Namespace"}:
        return True
    return each["metadata"]["name"] in {NAME, "vramline-own-reports"}


def agent_token(admin: httpx.Client, node: str | None, *, audience: str | None = None) -> str:
    """Return a token as kubelet would mount it into an agent's pod on a node; None: bound to no pod."""
    spec: dict[str, Any] = {} if audience is None else {"audiences": [audience]}
    if node is not None:
        pod = f"agent-{node}"
        body = {
            "metadata": {"name": pod},
            "spec": {
                "nodeName": node,
                "serviceAccountName": NAME,
                "containers": [{"name": "main", "image": "example"}],
            },
        }
        if not admin.get(f"{PODS}/{pod}").is_success:
            admin.post(PODS, json=body).raise_for_status()
        uid = admin.get(f"{PODS}/{pod}").json()["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    path = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"
    return str(admin.post(path, json={"spec": spec}).raise_for_status().json()["status"]["token"])


class RunningAgent:
    """A running `vramline agent`."""

    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self.url = f"http://127.0.0.1:{port}"

    def has_logged(self, event: str) -> bool:
        """Whether an event is in its log."""
        return f'"{event}"' in self.child.log.read_text()

    def figures(self) -> str:
        """Return its metrics."""
        return httpx.get(f"{self.url}/metrics", timeout=30.0).raise_for_status().text

    def is_healthy(self) -> bool:
        """Whether it says so."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=30.0).is_success
        except httpx.TransportError:
            return False


@contextmanager
def run_agent(
    plane: ControlPlane,
    node: str,
    nvml: FakeNvml,
    *,
    token: str,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[RunningAgent]:
    """Run the real command with this token until the block ends."""
    port = free_port()
    kubeconfig = write_kubeconfig(plane, f"agent-{node}-{port}", token)
    arguments = [sys.executable, "-m", "vramline", "agent", "--node", node, "--library", str(nvml.library)]
    arguments += ["--kubeconfig", str(kubeconfig), "--metrics-listen", f"127.0.0.1:{port}"]
    arguments += ["--pod-resources", str(plane.folder / "no-kubelet.sock"), *options]
    given = {"VRAMLINE_LOG_FORMAT": "json", "PATH": os.environ["PATH"], **nvml.environment(), **(env or {})}
    child = Child(f"agent-{node}", arguments, plane.folder / f"agent-{node}-{port}.log", given)
    agent = RunningAgent(child, port)
    try:
        wait_until(agent.is_healthy, f"the agent of {node}", children=(child,))
        yield agent
    finally:
        child.stop()


def write_kubeconfig(plane: ControlPlane, name: str, token: str) -> Path:
    """Write a kubeconfig whose user is a token in a file, as it is inside a pod."""
    (plane.folder / f"{name}.token").write_text(token)
    cluster = {"server": plane.url, "certificate-authority": str(plane.folder / "ca.crt")}
    content = {
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "agent", "user": {"tokenFile": str(plane.folder / f"{name}.token")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "agent"}}],
        "current-context": "test",
    }
    path = plane.folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(content))
    return path
