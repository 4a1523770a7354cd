"""A tenant with the built-in role `edit` against the policies alone: no webhook runs here, nothing gives."""

import contextlib
import copy
import json
import ssl
from collections.abc import Callable, Iterator

import httpx
import pytest

from controlplane.commands import Commands
from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane, control_plane
from controlplane.processes import wait_until
from e2e import attacks
from e2e.admission_world import (
    SCHEDULER,
    create_namespace,
    install_policies,
    install_tenant,
    pod,
    pods_of,
)
from e2e.attacks import ALL_CARDS, ALLOCATION, OUR_CARDS, REPORT, Object, admitted, annotate
from vramline.wire import keys

TEAM = pods_of("team")
REPORTS = "/apis/vramline.io/v1alpha1/gpureports"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Agents = Callable[[str], contextlib.AbstractContextManager[httpx.Client]]
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def plane(commands: Commands) -> Iterator[ControlPlane]:
    """With controllers: they fill the role `edit`, and make pods on a tenant's behalf."""
    with control_plane(commands, controllers=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        for name in ("vramline-system", "vramline-agent", "team"):
            create_namespace(client, name)
        create_namespace(client, "closed", **{keys.SIDE_DOORS: "closed"})
        for name in ("n1", "n2"):
            client.post("/api/v1/nodes", json=gpu_node(name)).raise_for_status()
        install_policies(client)
        yield client


@contextlib.contextmanager
def logged_in(plane: ControlPlane, admin: httpx.Client, namespace: str) -> Iterator[httpx.Client]:
    """A client that is a tenant of this namespace, once the role and the namespace are complete."""
    install_tenant(plane, admin, namespace)
    with plane.client(namespace) as client:
        path, params = pods_of(namespace), {"dryRun": "All"}
        wait_until(lambda: client.post(path, json=pod("probe"), params=params).is_success, "the role edit")
        yield client


@pytest.fixture(scope="module")
def tenant(plane: ControlPlane, admin: httpx.Client) -> Iterator[httpx.Client]:
    with logged_in(plane, admin, "team") as client:
        yield client


@pytest.fixture(scope="module")
def closed_tenant(plane: ControlPlane, admin: httpx.Client) -> Iterator[httpx.Client]:
    with logged_in(plane, admin, "closed") as client:
        yield client


def grant(admin: httpx.Client, role: str, subject: Object) -> None:
    body = {
        "metadata": {"name": subject["name"].replace(":", "-")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    admin.post(f"{RBAC}/clusterrolebindings", json=body).raise_for_status()


@pytest.fixture(scope="module")
def bound(plane: ControlPlane, admin: httpx.Client, tenant: httpx.Client) -> Object:
    """The tenant's own pod, bound to n1 by Vramline's scheduler."""
    plane.issue_user("scheduler", SCHEDULER)
    grant(admin, "system:kube-scheduler", {"kind": "User", "name": SCHEDULER})
    body = admitted("victim", annotations={"gpu-memory": "8000", "other": "x"})
    tenant.post(TEAM, json=body).raise_for_status()
    annotations = {keys.ALLOCATION: ALLOCATION, keys.VISIBLE_DEVICES: "GPU-1"}
    binding = {
        "metadata": {"name": "victim", "annotations": annotations},
        "target": {"kind": "Node", "name": "n1"},
    }
    with plane.client("scheduler") as scheduler:
        wait_until(lambda: scheduler.get(f"{TEAM}/victim").is_success, "the scheduler's rights")
        answer = scheduler.post(f"{TEAM}/victim/binding", json=binding)
    assert answer.status_code == httpx.codes.CREATED, answer.text
    stored: Object = tenant.get(f"{TEAM}/victim").json()
    assert annotations.items() <= stored["metadata"]["annotations"].items()
    return stored


@pytest.fixture(scope="module")
def pending(tenant: httpx.Client) -> Object:
    """The tenant's own pod, admitted and not yet bound."""
    answer = tenant.post(TEAM, json=admitted("waiting", annotations={"vramline.io/vram": "8000"}))
    assert answer.status_code == httpx.codes.CREATED, answer.text
    created: Object = answer.json()
    return created


def assert_refused(answer: httpx.Response, words: str) -> None:
    assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
    assert words in answer.json()["message"]


def sealed_part(body: Object) -> tuple[Object, Object]:
    return body["metadata"]["annotations"], body["metadata"].get("labels", {})


# ── forged at creation (T1, T2, T4) ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("body", "words"), attacks.CREATIONS.values(), ids=attacks.CREATIONS)
def test_nothing_is_forged_at_creation(tenant: httpx.Client, body: Object, words: str) -> None:
    answer = tenant.post(TEAM, json=body)

    assert_refused(answer, words)
    assert tenant.get(f"{TEAM}/forged").status_code == httpx.codes.NOT_FOUND


@pytest.mark.parametrize("body", [body for body, _ in attacks.CREATIONS.values()], ids=attacks.CREATIONS)
def test_nothing_is_forged_by_applying_it(tenant: httpx.Client, body: Object) -> None:
    answer = tenant.patch(
        f"{TEAM}/forged",
        content=json.dumps({"apiVersion": "v1", "kind": "Pod", **body}),
        headers={"Content-Type": "application/apply-patch+yaml"},
        params={"fieldManager": "tenant"},
    )

    assert answer.is_error
    assert tenant.get(f"{TEAM}/forged").status_code == httpx.codes.NOT_FOUND


def test_a_tenant_makes_no_static_pod(tenant: httpx.Client) -> None:
    mirror = pod("forged", annotations={keys.MIRROR: "x"}, limits={"nvidia.com/gpu": "1"}, nodeName="n1")

    answer = tenant.post(TEAM, json=mirror)

    assert_refused(answer, "cannot name its node")


def test_a_controller_forges_nothing_on_a_tenants_behalf(tenant: httpx.Client) -> None:
    template = pod("", annotations={keys.ALLOCATION: ALLOCATION}, labels={"app": "x"})
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    path = "/apis/apps/v1/namespaces/team/replicasets"
    tenant.post(path, json={"metadata": {"name": "forger"}, "spec": spec}).raise_for_status()

    wait_until(lambda: "conditions" in tenant.get(f"{path}/forger").json()["status"], "the controller")

    [condition] = tenant.get(f"{path}/forger").json()["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("ReplicaFailure", "True")
    assert "written by Vramline alone" in condition["message"]
    assert tenant.get(TEAM, params={"labelSelector": "app=x"}).json()["items"] == []


@pytest.mark.parametrize(("body", "words"), attacks.SIDE_DOORS.values(), ids=attacks.SIDE_DOORS)
def test_side_doors_are_closed_where_the_namespace_says_so(
    closed_tenant: httpx.Client, body: Object, words: str
) -> None:
    assert_refused(closed_tenant.post(pods_of("closed"), json=body), words)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(pod("fine"), id="a plain pod"),
        pytest.param(admitted("fine", annotations={"gpu-memory": "1"}), id="an admitted pod"),
        pytest.param(pod("fine", volumes=[{"name": "v", "emptyDir": {}}]), id="a volume"),
        pytest.param(
            pod("fine", volumes=[{"name": "v", "hostPath": {"path": "/development"}}]), id="another path"
        ),
    ],
)
def test_the_front_door_is_open(closed_tenant: httpx.Client, body: Object) -> None:
    answer = closed_tenant.post(pods_of("closed"), json=body, params={"dryRun": "All"})

    assert answer.status_code == httpx.codes.CREATED, answer.text


# ── changed afterwards (T3) ──────────────────────────────────────────────────────────────────────────


def merge_of(before: Object, wanted: Object) -> Object:
    """The merge patch that makes one object's annotations and labels those of the other."""
    parts = {}
    for part in ("annotations", "labels"):
        old, new = before["metadata"].get(part, {}), wanted["metadata"].get(part, {})
        parts[part] = {key: new.get(key) for key in {*old, *new} if old.get(key) != new.get(key)}
    return {"metadata": parts}


@pytest.mark.parametrize("attack", attacks.CHANGES.values(), ids=attacks.CHANGES)
@pytest.mark.parametrize(
    "part", ["", "/ephemeralcontainers", pytest.param("/resize", marks=pytest.mark.since(33)), "/status"]
)
@pytest.mark.parametrize("way", ["put", "patch"])
def test_a_bound_pod_stays_what_it_is(
    tenant: httpx.Client,
    admin: httpx.Client,
    bound: Object,
    attack: tuple[Callable[[Object], None], str],
    part: str,
    way: str,
) -> None:
    """Tried by the tenant, and by somebody whom no role stops: the policies must do."""
    change, words = attack
    before = tenant.get(f"{TEAM}/victim").json()
    wanted = copy.deepcopy(before)
    change(wanted)
    for client in (tenant, admin):
        path = f"{TEAM}/victim{part}"
        answer = (
            client.put(path, json=wanted)
            if way == "put"
            else client.patch(path, json=merge_of(before, wanted), headers=MERGE)
        )
        if client is admin and part in {"/ephemeralcontainers", "/resize"}:
            assert answer.is_success, "the API server leaves metadata out there, before any policy"
        else:
            assert_refused(answer, f'resource "pods{part}"' if part and client is tenant else words)
    assert sealed_part(tenant.get(f"{TEAM}/victim").json()) == sealed_part(bound)


@pytest.mark.parametrize(
    "env", [[ALL_CARDS], [], [ALL_CARDS, OUR_CARDS]], ids=["all cards", "none", "two answers"]
)
@pytest.mark.usefixtures("bound")
def test_an_ephemeral_container_sees_no_other_cards(admin: httpx.Client, env: list[Object]) -> None:
    change = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i", "env": env}]}}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}

    answer = admin.patch(f"{TEAM}/victim/ephemeralcontainers", json=change, headers=headers)

    assert_refused(answer, "must take NVIDIA_VISIBLE_DEVICES from annotation vramline.io/visible-devices")
    assert "ephemeralContainers" not in admin.get(f"{TEAM}/victim").json()["spec"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vramline.io/vram", "1"),
        ("vramline.io/gpus", "2"),
        ("nvidia.com/use-gpuuuid", "GPU-2"),
        (keys.ASK, '{"gpus":1,"size":{"type":"mib","mib":1}}'),
        (keys.ALLOCATION, ALLOCATION),
    ],
)
def test_an_admitted_pod_has_asked_once_and_for_all(
    tenant: httpx.Client, pending: Object, key: str, value: str
) -> None:
    wanted = copy.deepcopy(pending)
    annotate(key, value)(wanted)

    assert_refused(
        tenant.patch(f"{TEAM}/waiting", json=merge_of(pending, wanted), headers=MERGE), "vramline.io"
    )
    assert sealed_part(tenant.get(f"{TEAM}/waiting").json()) == sealed_part(pending)


@pytest.mark.usefixtures("bound")
def test_everything_else_about_a_pod_may_change(tenant: httpx.Client) -> None:
    change = {"metadata": {"annotations": {"other": "y", "new": "z"}, "labels": {"app": "a"}}}

    answer = tenant.patch(f"{TEAM}/victim", json=change, headers=MERGE, params={"dryRun": "All"})

    assert answer.status_code == httpx.codes.OK, answer.text


# ── what is not a tenant's to write (T2, T8) ─────────────────────────────────────────────────────────


def send(client: httpx.Client, method: str, path: str, body: Object) -> httpx.Response:
    return client.request(method, path, json=body, headers=MERGE if method == "PATCH" else {})


@pytest.mark.usefixtures("bound", "pending")
@pytest.mark.parametrize(("method", "path", "body"), attacks.NO_RIGHT.values(), ids=attacks.NO_RIGHT)
def test_a_tenant_has_no_right_to_it(tenant: httpx.Client, method: str, path: str, body: Object) -> None:
    assert_refused(send(tenant, method, path, body), "cannot")
    assert "nodeName" not in tenant.get(f"{TEAM}/waiting").json()["spec"]


@pytest.mark.usefixtures("bound", "pending")
@pytest.mark.parametrize(("method", "path", "body", "words"), attacks.NOT_HIS.values(), ids=attacks.NOT_HIS)
def test_not_even_an_administrator_writes_what_is_not_his(
    admin: httpx.Client, method: str, path: str, body: Object, words: str
) -> None:
    assert_refused(send(admin, method, path, body), words)


# ── a node that lies (T8) ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def agents(plane: ControlPlane, admin: httpx.Client) -> Agents:
    """From a node's name to a client with the token of the agent there; an empty name: of no pod."""
    path = "/api/v1/namespaces/vramline-agent/serviceaccounts"
    admin.post(path, json={"metadata": {"name": "vramline-agent"}}).raise_for_status()
    rules = [{"apiGroups": ["vramline.io"], "resources": ["*"], "verbs": ["*"]}]
    role = {"metadata": {"name": "agent"}, "rules": rules}
    admin.post(f"{RBAC}/clusterroles", json=role).raise_for_status()
    subject = {"kind": "ServiceAccount", "name": "vramline-agent", "namespace": "vramline-agent"}
    grant(admin, "agent", subject)

    def token_of(node: str) -> str:
        spec: Object = {}
        if node:
            body = pod(f"agent-{node}", nodeName=node, serviceAccountName="vramline-agent")
            made = admin.post(pods_of("vramline-agent"), json=body).raise_for_status().json()["metadata"]
            pod_itself = {"kind": "Pod", "apiVersion": "v1", "name": made["name"], "uid": made["uid"]}
            spec["boundObjectRef"] = pod_itself
        answer = admin.post(f"{path}/vramline-agent/token", json={"spec": spec})
        return str(answer.raise_for_status().json()["status"]["token"])

    @contextlib.contextmanager
    def log_in_at(node: str) -> Iterator[httpx.Client]:
        context = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
        headers = {"Authorization": f"Bearer {token_of(node)}"}
        with httpx.Client(base_url=plane.url, verify=context, headers=headers) as client:
            wait_until(lambda: client.get(REPORTS).is_success, "the agent's rights")
            yield client

    return log_in_at


def test_an_agent_writes_the_report_of_its_own_node_and_of_no_other(
    admin: httpx.Client, agents: Agents
) -> None:
    with agents("n1") as here, agents("n2") as elsewhere, agents("") as nowhere:
        for liar in (elsewhere, nowhere):
            assert_refused(liar.post(REPORTS, json=REPORT), "by the agent on that node alone")

        assert here.post(REPORTS, json=REPORT).status_code == httpx.codes.CREATED
        for liar in (elsewhere, nowhere):
            assert_refused(
                liar.patch(f"{REPORTS}/n1/status", json={"status": {"platform": "x"}}, headers=MERGE),
                "by the agent on that node alone",
            )
        report = here.get(f"{REPORTS}/n1").json() | {"status": REPORT["status"]}
        assert here.put(f"{REPORTS}/n1/status", json=report).status_code == httpx.codes.OK
    relabelled = admin.patch(f"{REPORTS}/n1", json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    assert relabelled.status_code == httpx.codes.OK, "metadata is nobody's word"
