"""Start and stop one real node, and ask its kubelet about pods."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from controlplane.plane import ControlPlane
from controlplane.processes import Child, free_port, wait_until
from realnode.cgroups import hierarchies
from realnode.configuration import Layout, write_configuration
from realnode.image import write_image
from realnode.machine import Programs

__all__ = ["RealNode", "real_node"]

_TESTS = Path(__file__).parent.parent
_MOST_NODES = 250
_NOT_READY = "node.kubernetes.io/not-ready"


class RealNode:
    """A running kubelet on a running containerd, in mount and process namespaces of its own.

    `kubelet_folder` is the node's /var/lib/kubelet as seen from outside: its sockets can be used from here.
    """

    def __init__(self, plane: ControlPlane, programs: Programs, name: str, layout: Layout) -> None:
        self.plane = plane
        self.name = name
        self.folder = layout.folder
        self.cgroup = layout.cgroup
        self.kubelet_folder = layout.var_lib / "kubelet"
        self._programs = programs
        self._layout = layout
        self._children: list[Child] = []
        self._keeper: subprocess.Popen[str] | None = None
        self._http = httpx.Client(
            base_url=f"https://127.0.0.1:{layout.port}",
            verify=False,  # noqa: S501 — its own certificate, on loopback
            timeout=30.0,
        )

    def start(self, labels: Mapping[str, str], mark: socket.socket) -> None:
        """Start everything and wait until the API server calls the node ready."""
        user = f"system:node:{self.name}"
        write_configuration(self._layout, self.plane.issue_user(self.name, user, "system:nodes"))
        self._labels = ",".join(f"{key}={value}" for key, value in labels.items())
        self._start_keeper(mark)
        self._start_containerd()
        self.start_kubelet()
        self.wait_until_ready()

    def stop(self) -> None:
        """End every process of the node; mounts, cgroups and the folder go with them."""
        self._http.close()
        if self._keeper is not None:
            self._keeper.communicate()
        for child in self._children:
            child.stop()

    # ── kubelet ──────────────────────────────────────────────────────────────────────────────────────

    def start_kubelet(self) -> None:
        """Start kubelet, the first time or again; its containers outlive it."""
        self._kubelet = self._inside(
            "kubelet",
            self._programs.kubelet,
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self.folder / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-labels={self._labels}",
        )
        with httpx.Client() as probe:
            url = f"http://127.0.0.1:{self._layout.health_port}/healthz"
            wait_until(lambda: _answers(probe, url), "kubelet", children=(self._kubelet,))

    def kill_kubelet(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End kubelet by a signal and wait until it is gone."""
        [pid] = _children_of(self._kubelet.pid)
        os.kill(pid, number)
        wait_until(self._kubelet.has_ended, "the end of kubelet")

    def wait_until_ready(self) -> None:
        """Wait until it is Ready, and take the taint away as the node lifecycle controller would."""
        with self.plane.client() as admin:
            wait_until(lambda: _is_ready(admin, self.name), f"node {self.name}", children=(self._kubelet,))
            wait_until(
                lambda: self._knows_its_pods(admin), "kubelet to know its pods", children=(self._kubelet,)
            )
            wait_until(lambda: _remove_taint(admin, self.name), "a write of the node")

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────

    def logs(self, namespace: str, pod: str, container: str = "main") -> str:
        """Return what a container has written."""
        return self._http.get(f"/containerLogs/{namespace}/{pod}/{container}").raise_for_status().text

    def words(self, namespace: str, pod: str, container: str = "main") -> str:
        """Return what a container has written, once that is anything: it runs before it has said a word."""
        wait_until(lambda: self.logs(namespace, pod, container) != "", f"the words of {namespace}/{pod}")
        return self.logs(namespace, pod, container)

    def run(self, namespace: str, pod: str, *command: str, container: str = "main") -> str:
        """Run a command in a container and return what it writes."""
        query = {"cmd": " ".join(command)}
        return self._http.post(f"/run/{namespace}/{pod}/{container}", params=query).raise_for_status().text

    def end_container(self, namespace: str, pod: str, container: str = "main") -> None:
        """Let the first process of a container end; kubelet may lose sight of who did it."""
        with contextlib.suppress(httpx.HTTPStatusError):
            self.run(namespace, pod, "kill", "1", container=container)

    def memory_of(self, pod_uid: str) -> dict[int, int]:
        """Return resident KiB of every process of a pod, by its id on this machine."""
        pids = {pid for root in hierarchies() for pid in _pids_of_pod(root / self.cgroup, pod_uid)}
        return {pid: kib for pid in pids if (kib := _resident_kib(pid)) is not None}

    def processes_of(self, pod_uid: str) -> list[int]:
        """Return the process ids of a pod, its pause container's too, as the node counts them."""
        pids = {pid for root in hierarchies() for pid in _pids_of_pod(root / self.cgroup, pod_uid)}
        return sorted(inside for pid in pids if (inside := _pid_inside(pid)) is not None)

    def _knows_its_pods(self, admin: httpx.Client) -> bool:
        """Whether kubelet, perhaps started again, has heard of every pod that is bound to the node."""
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        bound = admin.get("/api/v1/pods", params=query).raise_for_status().json()["items"]
        known = self._http.get("/pods").raise_for_status().json().get("items") or []
        return {each["metadata"]["uid"] for each in bound} <= {each["metadata"]["uid"] for each in known}

    # ── processes ────────────────────────────────────────────────────────────────────────────────────

    def _start_keeper(self, mark: socket.socket) -> None:
        """Start what clears up; it holds the node's number until nothing is left of the node."""
        self._keeper = keeper = subprocess.Popen(
            [sys.executable, "-m", "realnode.keeper", str(self.folder), self.cgroup],
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            pass_fds=(mark.fileno(),),
        )
        assert keeper.stdout is not None
        self._init_pid = keeper.stdout.readline().strip()
        if not self._init_pid:
            raise RuntimeError(f"the node's namespaces could not be made: {self._read('init.log')}")

    def _start_containerd(self) -> None:
        write_image(self.folder / "image.tar", self._programs.busybox)
        child = self._inside(
            "containerd", self._programs.containerd, f"--config={self.folder / 'containerd.toml'}"
        )
        ctr = [self._programs.ctr, "--address", str(self._layout.containerd_socket), "--namespace", "k8s.io"]
        wait_until(lambda: _succeeds([*ctr, "version"]), "containerd", children=(child,))
        imported = self._inside("import", *ctr, "images", "import", str(self.folder / "image.tar"))
        wait_until(imported.has_ended, "the import of the image", children=(child,))

    def _inside(self, name: str, *arguments: str) -> Child:
        entered = ["nsenter", f"--target={self._init_pid}", "--mount", "--pid", "--", *arguments]
        child = Child(f"{name} of {self.name}", entered, self.folder / f"{name}.log")
        self._children.append(child)
        return child

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@contextmanager
def real_node(
    plane: ControlPlane,
    programs: Programs,
    *,
    name: str = "localhost",
    labels: Mapping[str, str] | None = None,
) -> Iterator[RealNode]:
    """Run a node of this control plane for the length of a `with` block; leave nothing behind.

    For a node called `localhost`, `kubectl logs` and `kubectl exec` find kubelet too.
    """
    with socket.socket(socket.AF_UNIX) as mark:
        layout = Layout(Path(tempfile.mkdtemp(prefix="vn-")), _take_number(mark), free_port(), free_port())
        node = RealNode(plane, programs, name, layout)
        try:
            node.start(labels or {}, mark)
            yield node
        finally:
            node.stop()
            shutil.rmtree(layout.folder, ignore_errors=True)


def _take_number(mark: socket.socket) -> int:
    """Return a number that no other node has while a process holds this socket; a killed one frees it."""
    return next(number for number in range(_MOST_NODES) if _takes(mark, number))


def _takes(mark: socket.socket, number: int) -> bool:
    try:
        mark.bind(f"\0vramline-node-{number}")
    except OSError:
        return False
    return True


def _is_ready(admin: httpx.Client, name: str) -> bool:
    answer = admin.get(f"/api/v1/nodes/{name}")
    conditions = answer.json().get("status", {}).get("conditions", []) if answer.is_success else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _remove_taint(admin: httpx.Client, name: str) -> bool:
    node = admin.get(f"/api/v1/nodes/{name}").json()
    left = [each for each in node["spec"].get("taints", []) if each["key"] != _NOT_READY]
    if left == node["spec"].get("taints", []):
        return True
    node["spec"]["taints"] = left
    return admin.put(f"/api/v1/nodes/{name}", json=node).is_success


def _children_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if path.read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(int(path.parent.name))
    return found


def _pids_of_pod(root: Path, uid: str) -> Iterator[int]:
    """Yield the processes of a pod below a cgroup; what is being removed at the same time has none."""
    for folder, _, _ in os.walk(root):
        if f"pod{uid}" in folder:
            with contextlib.suppress(OSError):
                yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())


def _resident_kib(pid: int) -> int | None:
    """Return what a process has in memory; None: it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return None


def _pid_inside(pid: int) -> int | None:
    """Translate a process id of the machine into the node's; None: the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    [numbers] = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    return int(numbers[1])  # from the outermost namespace to the innermost: the machine, the node, the pod


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).is_success
    except httpx.TransportError:
        return False


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
