"""A control plane under Vramline's policies, its webhook on loopback, and tenants, for tests of admission."""

import asyncio
import base64
import contextlib
import copy
import datetime as dt
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import httpx
import uvicorn
import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from e2e.kube_worlds import admin as kube_admin
from last_turns import leave_nothing_open
from vramline.kube.certificates import Lifetimes, renew_identity
from vramline.kube.objects import ObjectKey
from vramline.kube.webhook_store import WebhookStore
from vramline.scheduler.listen import open_webhook_socket
from vramline.scheduler.tls import CertificateKeeper, LiveTls, configure_server
from vramline.scheduler.webhook import build_webhook_app
from vramline.settings import Address
from vramline.wire.admission import AdmissionOptions

__all__ = [
    "CONFIGURATION",
    "REGISTRATION",
    "SCHEDULER",
    "BrokenServer",
    "Webhook",
    "create_namespace",
    "install_files",
    "install_policies",
    "install_tenant",
    "pod",
    "pods_of",
]

Object = dict[str, Any]
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATION = f"{REGISTRATION}/mutatingwebhookconfigurations/vramline"
SCHEDULER = "system:serviceaccount:vramline-system:vramline-scheduler"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_SECRET = ObjectKey("vramline-webhook-tls", "vramline-system")
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingAdmissionPolicy": f"{REGISTRATION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{REGISTRATION}/validatingadmissionpolicybindings",
}


def pods_of(namespace: str) -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(
    name: str,
    *,
    annotations: Object | None = None,
    labels: Object | None = None,
    limits: Object | None = None,
    **spec: Any,
) -> Object:
    """A pod with one container called main."""
    container: Object = {"name": "main", "image": "i"}
    if limits:
        container["resources"] = {"limits": limits}
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


# ── what is installed ────────────────────────────────────────────────────────────────────────────────


def install_files(folder: str) -> list[Object]:
    """Every object of a folder of the chart, with the defaults that are in the files."""
    files = sorted((resources.files("vramline") / "install" / folder).iterdir(), key=lambda each: each.name)
    return [each for file in files for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def create_namespace(admin: httpx.Client, name: str, **labels: str) -> None:
    """Make a namespace."""
    body = {"metadata": {"name": name, "labels": labels}}
    admin.post("/api/v1/namespaces", json=body).raise_for_status()


def install_policies(admin: httpx.Client) -> None:
    """Apply kinds and policies, and wait until the policies are in force."""
    for each in [*install_files("crds"), *install_files("policies")]:
        if each["kind"] in _PATHS:
            admin.post(_PATHS[each["kind"]], json=each).raise_for_status()
    create_namespace(admin, "probe", **{"vramline.io/side-doors": "closed"})
    forged = pod("probe", annotations={"vramline.io/allocation": "{}"})
    hasty = pod("probe", annotations={"gpu-memory": "1"}, nodeName="n")
    privileged = pod("probe", volumes=[{"name": "v", "hostPath": {"path": "/dev"}}])
    report = {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuReport", "metadata": {"name": "probe"}}
    ledger = {**report, "kind": "GpuLedger", "spec": {"epoch": 0}}
    bound = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "x", "annotations": {"vramline.io/x": ""}},
    }
    intent = {**report, "kind": "BindRequest"}
    intent["spec"] = {"podUID": "u", "node": "n", "gpus": [{"uuid": "g", "mib": 1}]}
    own = "/apis/vramline.io/v1alpha1"
    for path, body in (
        *((pods_of("probe"), each) for each in (forged, hasty, privileged)),
        (f"{own}/gpureports", report),
        (f"{own}/gpuledgers", ledger),
        (f"{own}/namespaces/probe/bindrequests", intent),
        (f"{pods_of('probe')}/x/binding", {**bound, "target": {"kind": "Node", "name": "n"}}),
    ):
        wait_until(_is_refused(admin, path, body), f"the policy that forbids {body}", seconds=60.0)
    _wait_for_frozen_asks(admin)


def _is_refused(admin: httpx.Client, path: str, body: Object) -> Callable[[], bool]:
    def refused() -> bool:
        answer = admin.post(path, params={"dryRun": "All"}, json=body)
        return answer.status_code == 403 and "denied request" in answer.text

    return refused


def _wait_for_frozen_asks(admin: httpx.Client) -> None:
    frozen = pod("frozen", nodeName="n")
    wait_until(lambda: admin.post(pods_of("probe"), json=frozen).is_success, "the namespace", seconds=60.0)
    path, change = f"{pods_of('probe')}/frozen", {"metadata": {"annotations": {"gpu-memory": "1"}}}
    headers = {"Content-Type": "application/merge-patch+json"}

    def refused() -> bool:
        return admin.patch(path, params={"dryRun": "All"}, json=change, headers=headers).status_code == 403

    wait_until(refused, "the policy that freezes asks", seconds=60.0)


def install_tenant(plane: ControlPlane, admin: httpx.Client, namespace: str) -> None:
    """Make a user called like the namespace, who has the built-in role `edit` in it and nothing else."""
    plane.issue_user(namespace, namespace)
    binding = {
        "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": namespace}],
    }
    admin.post(f"{_RBAC}/namespaces/{namespace}/rolebindings", json=binding).raise_for_status()


# ── the webhook ──────────────────────────────────────────────────────────────────────────────────────


class _Counter:
    """Counts the reviews that reach an application; `/inject` is somebody else's webhook."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += scope.get("path") == "/webhook"
        app = _inject_container if scope.get("path") == "/inject" else self._app
        await app(scope, receive, send)


async def _inject_container(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a review by adding a container called `injected`, once."""
    review = await Request(scope, receive).json()
    names = [each["name"] for each in review["request"]["object"]["spec"]["containers"]]
    response: Object = {"uid": review["request"]["uid"], "allowed": True}
    if "injected" not in names:
        patch = [{"op": "add", "path": "/spec/containers/-", "value": {"name": "injected", "image": "i"}}]
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    await JSONResponse({**review, "response": response})(scope, receive, send)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Webhook:
    """The real webhook in a thread, with certificates that it keeps in the real API server."""

    def __init__(self, plane: ControlPlane, *, lifetimes: Lifetimes | None = None) -> None:
        self._plane = plane
        self._lifetimes = lifetimes
        self._listener = open_webhook_socket(Address("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/webhook"
        self._counter = _Counter(build_webhook_app(AdmissionOptions(), is_ready=lambda: True))
        self._loop = asyncio.new_event_loop()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    @property
    def calls(self) -> int:
        """Reviews so far."""
        return self._counter.calls

    def start(self, admin: httpx.Client) -> None:
        """Store an empty Secret and the shipped configuration, and wait until pods are changed."""
        metadata = {"name": _SECRET.name, "labels": {"app": "vramline"}}
        secrets = f"/api/v1/namespaces/{_SECRET.namespace}/secrets"
        admin.post(secrets, json={"metadata": metadata, "type": "Opaque"}).raise_for_status()
        [shipped] = [
            each for each in install_files("policies") if each["kind"] == "MutatingWebhookConfiguration"
        ]
        for webhook in shipped["webhooks"]:
            webhook["clientConfig"] = {"url": self.url}
        admin.post(CONFIGURATION.rsplit("/", 1)[0], json=shipped).raise_for_status()
        self._thread.start()
        assert self._running.wait(60.0)
        self.wait_until_active(admin)

    def wait_until_active(self, admin: httpx.Client) -> None:
        """Wait until the API server has heard of the configuration and trusts the certificate."""
        asking = pod("probe", annotations={"vramline.io/vram": "1"})

        def changed() -> bool:
            answer = admin.post(pods_of("probe"), params={"dryRun": "All"}, json=asking)
            return answer.is_success and answer.json()["spec"]["schedulerName"] == "vramline"

        wait_until(changed, "the webhook", seconds=60.0)

    def check_certificates(self) -> None:
        """Let the keeper do what it does every minute."""
        asyncio.run_coroutine_threadsafe(self._keeper.check(), self._loop).result(60.0)

    def stop(self) -> None:
        """End the server and its thread."""
        self._loop.call_soon_threadsafe(setattr, self._server, "should_exit", True)
        self._thread.join(20.0)
        self._loop.close()

    async def _serve(self) -> None:
        tls = LiveTls()
        async with kube_admin(self._plane) as client:
            store = WebhookStore(client, secret=_SECRET, configuration=ObjectKey("vramline"))
            self._keeper = CertificateKeeper(
                store,
                tls,
                names=("127.0.0.1",),
                clock=lambda: dt.datetime.now(dt.UTC),
                lifetimes=self._lifetimes,
            )
            await self._keeper.check()
            self._server = _Server(configure_server(self._counter, tls))
            self._running.set()
            await self._server.serve(sockets=[self._listener])
        await leave_nothing_open()


class BrokenServer:
    """Something at the webhook's address that does not work, and counts who comes."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/webhook"
        self.visits = 0
        self._open: list[socket.socket] = []
        self._tls = LiveTls()
        self._tls.serve(renew_identity(None, names=("127.0.0.1",), now=dt.datetime.now(dt.UTC)))
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                visitor, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            if self._fault == "gone":
                visitor.close()
                continue
            self._open.append(visitor)
            if self._fault == "untrusted":
                with contextlib.suppress(ssl.SSLError, OSError):
                    self._open.append(self._tls.context.wrap_socket(visitor, server_side=True))

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10.0)
        self._listener.close()
        for each in self._open:
            each.close()

    @contextlib.contextmanager
    def in_place_of(self, webhook: Webhook, admin: httpx.Client) -> Iterator[None]:
        """Point the configuration here, wait until the API server does, and put it right afterwards."""
        stored = admin.get(CONFIGURATION).json()
        broken = copy.deepcopy(stored)
        for each in broken["webhooks"]:
            each["clientConfig"]["url"] = self.url
        admin.put(CONFIGURATION, json=broken).raise_for_status()
        asking = pod("probe", annotations={"vramline.io/vram": "1"})

        def unchanged() -> bool:
            answer = admin.post(pods_of("default"), params={"dryRun": "All"}, json=asking)
            return answer.is_success and answer.json()["spec"]["schedulerName"] == "default-scheduler"

        wait_until(unchanged, f"the fault {self._fault}", seconds=60.0)
        try:
            yield
        finally:
            back = admin.get(CONFIGURATION).json() | {"webhooks": stored["webhooks"]}
            admin.put(CONFIGURATION, json=back).raise_for_status()
            webhook.wait_until_active(admin)
