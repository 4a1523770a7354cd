"""The client against a real API server, with and without faults on the way."""

import asyncio
import base64
import json
import random
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from e2e.kube_worlds import IMPATIENT, QUICK, admin, kube_client, pod
from faultproxy.faults import Cut, Delay, Fault, Refuse, SwallowAnswer
from faultproxy.proxy import FaultProxy, fault_proxy
from vramline.kube.client import Binding, KubeClient, Patch, Preconditions, Selection
from vramline.kube.failures import (
    AmbiguousError,
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from vramline.kube.objects import NODES, PODS, ObjectKey
from vramline.kube.target import find_target


@pytest.fixture(scope="module")
def shared_proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(plane) as running:
        yield running


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> Iterator[FaultProxy]:
    yield shared_proxy
    shared_proxy.clear()
    shared_proxy.asked.clear()


def key(name: str) -> ObjectKey:
    return ObjectKey(name, "default")


# ── verbs ────────────────────────────────────────────────────────────────────────────────────────────
def test_an_object_lives_through_all_verbs(plane: ControlPlane) -> None:
    async def live() -> None:
        async with admin(plane) as client:
            made = await client.create(NODES, gpu_node("verbs", labels={"a": "1"}))
            read = await client.get(NODES, made.key)
            patched = await client.patch(NODES, made.key, Patch({"metadata": {"labels": {"a": "2"}}}))
            await client.delete(NODES, made.key, preconditions=Preconditions(uid=made.uid))

            assert (read.version, read.uid) == (made.version, made.uid)
            assert patched.version > made.version
            assert patched.value.metadata.labels == {"a": "2"}
            with pytest.raises(NotFoundError):
                await client.get(NODES, made.key)

    asyncio.run(live())


def test_an_update_needs_the_version_that_is_there(plane: ControlPlane) -> None:
    async def update() -> None:
        async with admin(plane) as client:
            made = await client.create(NODES, gpu_node("cas"))
            updated = await client.update(
                NODES, made.key, gpu_node("cas", labels={"by": "first"}), version=made.version
            )

            with pytest.raises(ConflictError) as conflict:
                await client.update(
                    NODES, made.key, gpu_node("cas", labels={"by": "second"}), version=made.version
                )

            assert not conflict.value.already_exists
            assert (await client.get(NODES, made.key)).version == updated.version

    asyncio.run(update())


def test_status_is_written_apart(plane: ControlPlane) -> None:
    async def write() -> None:
        async with admin(plane) as client:
            made = await client.create(PODS, pod("status"), namespace="default")
            status = {"conditions": [{"type": "Odd", "status": "True"}]}
            body = {"status": status, "spec": {"nodeName": "ignored"}}
            patched = await client.patch(PODS, made.key, Patch(body), subresource="status")

            assert patched.value.spec is not None
            assert patched.value.spec.node_name is None
            assert patched.value.status is not None
            assert len(patched.value.status.conditions or ()) == 1

    asyncio.run(write())


def test_pages_make_one_list(plane: ControlPlane) -> None:
    async def walk() -> None:
        async with admin(plane) as client:
            for number in range(7):
                await client.create(PODS, pod(f"page-{number}", labels={"set": "page"}), namespace="default")
            chosen = Selection(namespace="default", labels="set=page")
            paged = await client.list(PODS, chosen, page=2)
            whole = await client.list(PODS, chosen, page=0)

            assert [each.key.name for each in paged.items] == [f"page-{number}" for number in range(7)]
            assert paged.items == whole.items
            assert paged.version <= whole.version

    asyncio.run(walk())


def test_a_field_selector_finds_pods_without_a_node(plane: ControlPlane) -> None:
    async def select() -> None:
        async with admin(plane) as client:
            await client.create(PODS, pod("lonely"), namespace="default")
            chosen = Selection(namespace="default", fields="metadata.name=lonely,spec.nodeName=")

            assert [each.key.name for each in (await client.list(PODS, chosen)).items] == ["lonely"]

    asyncio.run(select())


def test_the_version_of_the_server_is_known(plane: ControlPlane) -> None:
    async def ask() -> None:
        async with admin(plane) as client:
            assert (await client.version()).startswith("v1.")

    asyncio.run(ask())


# ── binding ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_binding_sets_node_and_annotations_in_one_write(plane: ControlPlane) -> None:
    async def bind() -> None:
        async with admin(plane) as client:
            made = await client.create(PODS, pod("bound"), namespace="default")
            await client.bind(
                Binding(
                    pod=made.key, uid=made.uid, version=made.version, node="n1", annotations={"where": "here"}
                )
            )
            read = await client.get(PODS, made.key)

            assert read.value.spec is not None
            assert read.value.spec.node_name == "n1"
            assert (read.value.metadata.annotations or {})["where"] == "here"

    asyncio.run(bind())


@pytest.mark.parametrize(
    "wrong", ["uid", "version", "twice"], ids=["another pod", "a pod that changed", "a bound pod"]
)
def test_a_binding_is_refused_for(wrong: str, plane: ControlPlane) -> None:
    async def bind() -> None:
        async with admin(plane) as client:
            made = await client.create(PODS, pod(f"refused-{wrong}"), namespace="default")
            uid = "b7a1c3de-0000-4000-8000-000000000000" if wrong == "uid" else made.uid
            version = made.version - 1 if wrong == "version" else None
            binding = Binding(pod=made.key, uid=uid, version=version, node="n1")
            if wrong == "twice":
                await client.bind(binding)

            with pytest.raises(ConflictError):
                await client.bind(binding)

    asyncio.run(bind())


# ── what failures are called ─────────────────────────────────────────────────────────────────────────
def test_a_taken_name_is_told_from_a_conflict(plane: ControlPlane) -> None:
    async def create() -> None:
        async with admin(plane) as client:
            await client.create(NODES, gpu_node("taken"))
            with pytest.raises(ConflictError) as conflict:
                await client.create(NODES, gpu_node("taken"))
            assert conflict.value.already_exists

    asyncio.run(create())


def test_a_wrong_object_is_invalid(plane: ControlPlane) -> None:
    async def create() -> None:
        async with admin(plane) as client:
            with pytest.raises(InvalidError, match=r"spec\.containers"):
                await client.create(
                    PODS, {"metadata": {"name": "empty"}, "spec": {"containers": []}}, namespace="default"
                )

    asyncio.run(create())


def test_who_may_not_is_denied(plane: ControlPlane) -> None:
    kubeconfig = plane.issue_user("stranger", "stranger")

    async def read() -> None:
        async with kube_client(kubeconfig) as client:
            with pytest.raises(DeniedError, match="stranger"):
                await client.list(NODES)

    asyncio.run(read())


def test_nobody_listening_is_unavailable(tmp_path: Path, plane: ControlPlane) -> None:
    config = json.loads((plane.folder / "admin.kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "config").write_text(json.dumps(config))

    async def write() -> None:
        async with kube_client(tmp_path / "config") as client:
            with pytest.raises(UnavailableError):
                await client.create(NODES, gpu_node("nowhere"))

    asyncio.run(write())


# ── faults on the way ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "fault",
    [Cut(), Refuse(429, retry_after=0), Refuse(500), Refuse(503), SwallowAnswer()],
    ids=["cut", "429", "500", "503", "answer lost"],
)
def test_a_read_is_tried_again(fault: Fault, proxy: FaultProxy) -> None:
    proxy.add(fault, method="GET", times=2)

    async def read() -> int:
        async with kube_client(proxy.kubeconfig) as client:
            return len((await client.list(NODES, Selection(fields="metadata.name=none"))).items)

    assert asyncio.run(read()) == 0
    assert proxy.count("GET") == 3


def test_a_read_is_not_tried_for_ever(proxy: FaultProxy) -> None:
    proxy.add(Refuse(503), method="GET", times=99)

    async def read() -> None:
        async with kube_client(proxy.kubeconfig) as client:
            await client.list(NODES)

    with pytest.raises(UnavailableError):
        asyncio.run(read())
    assert proxy.count("GET") == QUICK.attempts


@pytest.mark.parametrize(
    ("fault", "error", "happened"),
    [
        pytest.param(Refuse(409), ConflictError, False, id="409 is a conflict"),
        pytest.param(Refuse(429, retry_after=7), ThrottledError, False, id="429 was not done"),
        pytest.param(Refuse(500), AmbiguousError, False, id="500 may be done"),
        pytest.param(Refuse(503), AmbiguousError, False, id="503 may be done"),
        pytest.param(Cut(), AmbiguousError, False, id="cut before it arrived, which the client cannot know"),
        pytest.param(SwallowAnswer(), AmbiguousError, True, id="cut after it was done"),
        pytest.param(SwallowAnswer(hang=True), AmbiguousError, True, id="time-out after it was done"),
    ],
)
def test_a_write_is_sent_once(
    fault: Fault, error: type[Exception], happened: bool, proxy: FaultProxy
) -> None:
    name = f"once-{uuid.uuid4().hex}"
    proxy.add(fault, method="POST")

    async def write() -> bool:
        async with kube_client(proxy.kubeconfig, IMPATIENT) as client:
            with pytest.raises(error):
                await client.create(NODES, gpu_node(name))
            found = await client.list(NODES, Selection(fields=f"metadata.name={name}"))
            return bool(found.items)

    assert asyncio.run(write()) is happened
    assert proxy.count("POST") == 1


def test_a_delay_is_only_a_delay(proxy: FaultProxy) -> None:
    proxy.add(Delay(0.2), method="POST")

    async def write() -> str:
        async with kube_client(proxy.kubeconfig) as client:
            return (await client.create(NODES, gpu_node("late"))).key.name

    assert asyncio.run(write()) == "late"


def test_how_long_to_wait_is_passed_on(proxy: FaultProxy) -> None:
    proxy.add(Refuse(429, retry_after=7), method="POST")

    async def write() -> float:
        async with kube_client(proxy.kubeconfig) as client:
            with pytest.raises(ThrottledError) as throttled:
                await client.create(NODES, gpu_node("throttled"))
            return throttled.value.retry_after_s

    assert asyncio.run(write()) == 7.0


def test_expired_pages_are_read_again_all_at_once(proxy: FaultProxy) -> None:
    proxy.add(Refuse(410), method="GET", query="continue=")

    async def read() -> set[str]:
        async with kube_client(proxy.kubeconfig) as client:
            for number in range(3):
                await client.create(PODS, pod(f"old-{number}", labels={"set": "old"}), namespace="default")
            listing = await client.list(PODS, Selection(namespace="default", labels="set=old"), page=2)
            return {each.key.name for each in listing.items}

    assert asyncio.run(read()) == {"old-0", "old-1", "old-2"}


def test_connections_that_were_cut_are_replaced(proxy: FaultProxy) -> None:
    async def read() -> None:
        async with kube_client(proxy.kubeconfig) as client:
            for _ in range(5):
                await client.version()
            proxy.cut_all()
            assert await client.version()

    asyncio.run(read())
    assert proxy.count("GET", "/version") in (6, 7)


# ── who we are ───────────────────────────────────────────────────────────────────────────────────────
def service_account_token(plane: ControlPlane) -> str:
    with plane.client() as http:
        http.post("/api/v1/namespaces/default/serviceaccounts", json={"metadata": {"name": "sa"}})
        grant = {
            "metadata": {"name": "sa-view"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}],
        }
        http.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json=grant)
        answer = http.post("/api/v1/namespaces/default/serviceaccounts/sa/token", json={"spec": {}})
        token: str = answer.raise_for_status().json()["status"]["token"]
        return token


def write_config(plane: ControlPlane, path: Path, user: dict[str, object]) -> Path:
    config = json.loads((plane.folder / "admin.kubeconfig").read_text())
    config["users"][0]["user"] = user
    path.write_text(json.dumps(config))
    return path


def list_nodes_as(kubeconfig: Path) -> None:
    async def read() -> None:
        async with kube_client(kubeconfig) as client:
            await client.list(NODES)

    asyncio.run(read())


def test_a_certificate_may_be_in_the_kubeconfig_itself(plane: ControlPlane, tmp_path: Path) -> None:
    inline = {
        f"client-{name}-data": base64.b64encode((plane.folder / f"admin.{suffix}").read_bytes()).decode()
        for name, suffix in (("certificate", "crt"), ("key", "key"))
    }

    list_nodes_as(write_config(plane, tmp_path / "config", dict(inline)))


def test_a_token_is_enough(plane: ControlPlane, tmp_path: Path) -> None:
    list_nodes_as(write_config(plane, tmp_path / "config", {"token": service_account_token(plane)}))


def test_a_command_may_print_the_token(plane: ControlPlane, tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": service_account_token(plane)},
    }
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print(open({str(tmp_path / 'answer')!r}).read())"],
        "interactiveMode": "Never",
    }

    list_nodes_as(write_config(plane, tmp_path / "config", {"exec": plugin}))


def test_a_replaced_token_file_is_read_again_after_401(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("expired")
    kubeconfig = write_config(plane, tmp_path / "config", {"tokenFile": "token"})

    async def read() -> None:
        async with kube_client(kubeconfig) as client:
            with pytest.raises(DeniedError):
                await client.list(NODES)
            (tmp_path / "token").write_text(service_account_token(plane))
            await client.create(NODES, gpu_node("rotated"))

    asyncio.run(read())


def test_a_pod_uses_its_service_account(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(service_account_token(plane))
    (tmp_path / "ca.crt").write_bytes((plane.folder / "ca.crt").read_bytes())
    inside = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
    target = find_target(inside, service_account=tmp_path)

    async def read() -> int:
        async with KubeClient(target, rng=random.Random(1), timing=QUICK) as client:
            return (await client.list(NODES)).version

    assert asyncio.run(read()) > 0


def test_impersonation_is_believed(plane: ControlPlane, tmp_path: Path) -> None:
    config = json.loads((plane.folder / "admin.kubeconfig").read_text())
    config["users"][0]["user"] |= {"as": "somebody", "as-groups": ["some", "group"]}
    (tmp_path / "config").write_text(json.dumps(config))

    with pytest.raises(DeniedError, match="somebody"):
        list_nodes_as(tmp_path / "config")


def test_a_server_that_somebody_else_signed_is_not_trusted(plane: ControlPlane, tmp_path: Path) -> None:
    config = json.loads((plane.folder / "admin.kubeconfig").read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    (tmp_path / "config").write_text(json.dumps(config))

    with pytest.raises(UnavailableError, match="certificate verify failed"):
        list_nodes_as(tmp_path / "config")
