"""HAMi's node lock taken on the real API server, with the shipped rights and under the shipped policy.

The test plays HAMi's device plugin: it believes the lock, hands out, and takes the lock away.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from controlplane.vramline import VramlineProcess, apply_crds, run_scheduler
from e2e.admission_world import REGISTRATION
from e2e.extender_calls import bind
from e2e.test_hami_nodes import MERGE, PODS, REGISTER, create, set_lock
from e2e.test_install import RBAC, SCHEDULER
from faultproxy.proxy import FaultProxy, fault_proxy
from install.rendered import find_object, rendered

OBJECTS = rendered("--with-hami-lock")
NODE = "/api/v1/nodes/hami"
LOCK = "hami.io/mutex.lock"
POLICY = "vramline-only-hami-lock"
NAMESPACED = {"Role": "roles", "RoleBinding": "rolebindings"}
CLUSTER_WIDE = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        for each in OBJECTS:
            role = each["roleRef"] if "roleRef" in each else each["metadata"]
            if role["name"] not in {"vramline-scheduler", "vramline-hami-lock"}:
                continue
            if each["kind"] in CLUSTER_WIDE:
                client.post(f"{RBAC}/{CLUSTER_WIDE[each['kind']]}", json=each).raise_for_status()
            elif each["kind"] in NAMESPACED and each["metadata"]["namespace"] == "vramline-system":
                folder = f"{RBAC}/namespaces/vramline-system/{NAMESPACED[each['kind']]}"
                client.post(folder, json=each).raise_for_status()
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
            plural = "validatingadmissionpolicies" if kind.endswith("Policy") else f"{kind.lower()}s"
            policy = find_object(OBJECTS, kind, POLICY)
            client.post(f"{REGISTRATION}/{plural}", json=policy).raise_for_status()
        node = gpu_node("hami", allocatable={"nvidia.com/gpu": "10"}, labels={"kept": "as-it-is"})
        node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": REGISTER}
        client.post("/api/v1/nodes", json=node).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, admin: httpx.Client) -> Iterator[FaultProxy]:
    admin.get("/version").raise_for_status()
    plane.issue_user("own", SCHEDULER)
    with fault_proxy(plane, "own") as running:
        yield running


def is_forbidden(client: httpx.Client) -> bool:
    """Whether a label would be refused; none is written, or it would be there and no change any more."""
    probe = {"metadata": {"labels": {"probe": "1"}}}
    return client.patch(NODE, json=probe, headers=MERGE, params={"dryRun": "All"}).status_code == 403


@pytest.fixture(scope="module")
def own(plane: ControlPlane, proxy: FaultProxy) -> Iterator[httpx.Client]:
    """The scheduler's account, once the policy is in force for it."""
    assert proxy.asked == []
    with plane.client("own") as client:
        wait_until(lambda: is_forbidden(client), "the policy")
        yield client


@pytest.fixture(scope="module")
def vramline(plane: ControlPlane, proxy: FaultProxy, own: httpx.Client) -> Iterator[VramlineProcess]:
    assert own.get(NODE).is_success
    with run_scheduler(plane, kubeconfig=proxy.kubeconfig, env={"VRAMLINE_HAMI_NODE_LOCK": "on"}) as process:
        yield process


def lock_of(admin: httpx.Client) -> str:
    return str(admin.get(NODE).json()["metadata"]["annotations"].get(LOCK, ""))


def hand_out(admin: httpx.Client, name: str) -> None:
    """Do what HAMi's plugin does when kubelet asks: the pod that the lock names gets its devices."""
    assert lock_of(admin).endswith(f",default,{name}")
    done = {"hami.io/bind-phase": "success", "hami.io/vgpu-devices-to-allocate": ";"}
    patch = {"metadata": {"annotations": done}}
    admin.patch(f"{PODS}/{name}", json=patch, headers=MERGE).raise_for_status()
    set_lock(admin, None)


def test_pods_get_their_devices_one_after_the_other_without_waiting_for_each_to_start(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    first, second = create(admin, vramline, "first"), create(admin, vramline, "second")

    assert bind(vramline.client, first, "hami") == ""
    assert "has yet to hand out the devices of default/first" in bind(vramline.client, second, "hami")
    hand_out(admin, "first")
    wait_until(lambda: bind(vramline.client, second, "hami") == "", "the second to be bound")
    hand_out(admin, "second")

    phases = {pod["status"]["phase"] for pod in admin.get(PODS).json()["items"]}
    assert phases == {"Pending"}, "none of them has started"


def test_a_lock_that_stands_for_another_pod_is_respected_and_one_left_behind_is_replaced(
    admin: httpx.Client, vramline: VramlineProcess
) -> None:
    third = create(admin, vramline, "third")
    standing = "2999-01-01T00:00:00Z,default,second"
    set_lock(admin, standing)
    assert "stands for default/second" in bind(vramline.client, third, "hami")
    assert lock_of(admin) == standing

    set_lock(admin, "2999-01-01T00:00:00Z,default,gone")
    wait_until(lambda: bind(vramline.client, third, "hami") == "", "the third to be bound")
    hand_out(admin, "third")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"labels": {"kept": "no-more"}}}, id="a-label"),
        pytest.param({"metadata": {"labels": None}}, id="all-labels"),
        pytest.param(
            {"metadata": {"annotations": {"hami.io/node-nvidia-register": "[]"}}}, id="the-register"
        ),
        pytest.param({"metadata": {"annotations": {"any.other": "1"}}}, id="another-annotation"),
        pytest.param({"metadata": {"finalizers": ["a.b/c"]}}, id="a-finalizer"),
        pytest.param({"spec": {"unschedulable": True}}, id="a-cordon"),
        pytest.param({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, id="a-taint"),
        pytest.param(
            {"metadata": {"annotations": {LOCK: "x"}}, "spec": {"unschedulable": True}}, id="beside-the-lock"
        ),
    ],
)
def test_nothing_else_of_a_node_can_be_changed(own: httpx.Client, change: dict[str, Any]) -> None:
    answer = own.patch(NODE, json=change, headers=MERGE)

    assert answer.status_code == 403
    assert "may change HAMi's lock on a node, and nothing else of it" in answer.json()["message"]


def test_both_rights_of_the_role_are_used_and_none_was_missing(
    vramline: VramlineProcess, proxy: FaultProxy
) -> None:
    assert vramline.client.get("/healthz").is_success
    calls = {(each.method, each.code) for each in proxy.asked if each.path == NODE}

    assert {("GET", 200), ("PATCH", 200)} <= calls
    assert not [each for each in proxy.asked if each.code in {401, 403}]
