"""Start and stop one control plane: etcd, kube-apiserver, and on demand kube-scheduler and controllers."""

import json
import os
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from controlplane.certificates import Authority, write_service_account_keys
from controlplane.commands import Commands
from controlplane.processes import Child, free_port, wait_until
from controlplane.sources import wanted_minor

__all__ = ["ControlPlane", "control_plane"]

_PREFIX = "vramline-plane-"
_NO_CONTROLLERS = "ServiceAccount,TaintNodesByCondition"
"""Admission plugins that only make sense beside kube-controller-manager."""


class ControlPlane:
    """A running API server with etcd behind it, in a folder of its own."""

    def __init__(self, commands: Commands, folder: Path, *, controllers: bool, audited: bool = False) -> None:
        self.commands = commands
        self.folder = folder
        self.with_controllers = controllers
        self.audit_log = folder / "audit.log" if audited else None
        """Every write and who made it, one JSON object a line; None: not asked for."""
        self.authority = Authority.create(folder)
        self.children: list[Child] = []
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start etcd and the API server and wait until they answer."""
        write_service_account_keys(self.folder)
        self.authority.issue_server("apiserver")
        etcd_url = self._start_etcd()
        self._start_apiserver(etcd_url)
        self.issue_user("admin", "admin", "system:masters")
        if self.with_controllers:
            self._start_controllers()

    def issue_user(self, name: str, user: str, *groups: str) -> Path:
        """Make a client certificate for a user and return the path of a kubeconfig that uses it."""
        self.authority.issue_client(name, user, *groups)
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(self._kubeconfig(name)))
        return path

    def client(self, name: str = "admin") -> httpx.Client:
        """Return an HTTP client that is this user to the API server."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        context.load_cert_chain(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        return httpx.Client(base_url=self.url, verify=context, timeout=30.0)

    def start_scheduler(self, configuration: dict[str, Any]) -> Child:
        """Start kube-scheduler with this KubeSchedulerConfiguration and wait until it is healthy."""
        number = len(self.children)
        kubeconfig = str(self.issue_user(f"scheduler-{number}", "system:kube-scheduler"))
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000},
            **configuration,
        }
        path = self.folder / f"scheduler-{number}.json"
        path.write_text(json.dumps(configuration))
        port = free_port()
        child = self._child(
            f"kube-scheduler-{number}",
            "kube-scheduler",
            f"--config={path}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        )
        ready = "readyz" if wanted_minor() >= 31 else "healthz"  # what there is; it says less
        with httpx.Client(verify=False) as probe:  # noqa: S501 — its own certificate, on loopback
            wait_until(
                lambda: _answers(probe, f"https://127.0.0.1:{port}/{ready}"), child.name, children=(child,)
            )
        return child

    def stop(self) -> None:
        """Stop every process, newest first."""
        for child in reversed(self.children):
            child.stop()
        self.children.clear()

    def _start_etcd(self) -> str:
        client, peer = free_port(), free_port()
        url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        child = self._child(
            "etcd",
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--log-level=warn",
            "--unsafe-no-fsync",
        )
        with httpx.Client() as probe:
            wait_until(lambda: _answers(probe, f"{url}/health"), "etcd", children=(child,))
        return url

    def _start_apiserver(self, etcd_url: str) -> None:
        child = self._child(
            "kube-apiserver",
            "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={self.folder / 'apiserver.crt'}",
            f"--tls-private-key-file={self.folder / 'apiserver.key'}",
            f"--client-ca-file={self.folder / 'ca.crt'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=Hostname",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            "--profiling=false",
            "--event-ttl=10m",
            "--enable-priority-and-fairness=false",
            *([] if self.with_controllers else [f"--disable-admission-plugins={_NO_CONTROLLERS}"]),
            *self._audit_flags(),
        )
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        with httpx.Client(verify=context) as probe:
            wait_until(
                lambda: _answers(probe, f"{self.url}/readyz"),
                "kube-apiserver",
                children=tuple(self.children),
            )
        child.check()

    def _audit_flags(self) -> list[str]:
        """Have every write noted down before it is answered."""
        if self.audit_log is None:
            return []
        writes = ["create", "update", "patch", "delete", "deletecollection"]
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "verbs": writes}, {"level": "None"}],
        }
        path = self.folder / "audit-policy.json"
        path.write_text(json.dumps(policy))
        return [
            f"--audit-policy-file={path}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
        ]

    def _start_controllers(self) -> None:
        kubeconfig = str(self.issue_user("controllers", "system:kube-controller-manager"))
        without = ["node-ipam-controller", "node-route-controller", "cloud-node-lifecycle-controller"]
        without += ["service-lb-controller", "node-lifecycle-controller", "taint-eviction-controller"]
        self._child(
            "kube-controller-manager",
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={self.folder / 'ca.crt'}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--controllers=*," + ",".join(f"-{name}" for name in without),
        )

    def _child(self, name: str, command: str, *arguments: str) -> Child:
        child = Child(name, [self.commands[command], *arguments], self.folder / f"{name}.log")
        self.children.append(child)
        return child

    def _kubeconfig(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority": str(self.folder / "ca.crt")},
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate": str(self.folder / f"{name}.crt"),
                        "client-key": str(self.folder / f"{name}.key"),
                    },
                }
            ],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }


@contextmanager
def control_plane(
    commands: Commands, *, controllers: bool = False, audited: bool = False
) -> Iterator[ControlPlane]:
    """Run a control plane for the length of a `with` block; leave nothing behind, even after a crash."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    plane = ControlPlane(commands, folder, controllers=controllers, audited=audited)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove folders of test runs that were killed; their processes died with them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
