"""What `vramline install` prints, applied to a real API server: accepted, in force, and no right too many."""

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import yaml

from controlplane.kubernetes import gpu_node, wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import Child, free_port, wait_until
from install.rendered import Object, find_object, pod_specs, rendered
from install.test_roles import rights_of

OBJECTS = rendered("--with-agent")
SCHEDULER = "system:serviceaccount:vramline-system:vramline-scheduler"
AGENT = "system:serviceaccount:vramline-agent:vramline-agent"
RESERVATION = "system:serviceaccount:vramline-reservations:vramline-reserve"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def kubectl(plane: ControlPlane, *arguments: str, stdin: object = None) -> str:
    kubeconfig = f"--kubeconfig={plane.folder / 'admin.kubeconfig'}"
    answer = subprocess.run(
        [plane.commands["kubectl"], kubeconfig, *arguments],
        input=None if stdin is None else json.dumps(stdin),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def as_list(objects: list[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": objects}


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> ControlPlane:
    """The control plane with everything applied at once, as the manual says."""
    kubectl(plane, "apply", "--validate=strict", "-f", "-", stdin=as_list(OBJECTS))
    return plane


@pytest.fixture(scope="module")
def admin(installed: ControlPlane) -> Iterator[httpx.Client]:
    with installed.client() as client:
        yield client


def test_the_kinds_are_served(installed: ControlPlane) -> None:
    kubectl(installed, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    served = kubectl(installed, "get", "gpuledgers,gpureports,bindrequests", "-o", "name")
    assert served == ""


def test_applying_again_changes_nothing(installed: ControlPlane) -> None:
    before = [_written(each) for each in _stored(installed)]

    kubectl(installed, "apply", "--validate=strict", "-f", "-", stdin=as_list(OBJECTS))

    assert [_written(each) for each in _stored(installed)] == before


def _written(stored: Object) -> object:
    """What changes with every write; the API server itself writes the status of kinds, when it has time."""
    if stored["kind"] != "CustomResourceDefinition":
        return stored["metadata"]["resourceVersion"]
    of_its_own = {"resourceVersion", "managedFields"}
    return {key: value for key, value in stored["metadata"].items() if key not in of_its_own}


def test_the_api_server_stores_what_was_written(installed: ControlPlane) -> None:
    for wanted, found in zip(OBJECTS, _stored(installed), strict=True):
        assert _differences(wanted, found) == []


def _stored(plane: ControlPlane) -> list[Object]:
    found: list[Object] = json.loads(kubectl(plane, "get", "-o", "json", "-f", "-", stdin=as_list(OBJECTS)))[
        "items"
    ]
    return found


def _differences(wanted: object, found: object, path: str = "") -> list[str]:
    """Where an object lacks something that was written into it; added defaults are no difference."""
    match wanted, found:
        case dict(), dict():
            return [
                text
                for key, value in wanted.items()
                if value not in ([], {})
                for text in _differences(value, found.get(key), f"{path}.{key}")
            ]
        case list(), list() if len(wanted) == len(found):
            pairs = enumerate(zip(wanted, found, strict=True))
            return [
                text for index, (one, other) in pairs for text in _differences(one, other, f"{path}[{index}]")
            ]
        case int(), int():  # a bound in a schema is stored as a floating-point number
            return [] if float(wanted) == float(found) else [f"{path}: {wanted} became {found}"]
        case _:
            return [] if wanted == found else [f"{path}: {wanted!r} became {found!r}"]


def test_types_of_all_policies_were_checked_without_a_warning(admin: httpx.Client) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    warned = [each["metadata"]["name"] for each in admin.get(path).json()["items"] if _warnings(each)]

    assert warned == []


def _warnings(policy: Object) -> list[Object]:
    found: list[Object] = policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings", [])
    return found


def test_the_policies_are_in_force(admin: httpx.Client) -> None:
    pod = a_pod("forger", annotations={"vramline.io/allocation": "{}"})

    def is_refused() -> bool:
        return _create(admin, "default", pod).status_code == httpx.codes.FORBIDDEN

    wait_until(is_refused, "the policy on sealed keys", seconds=60.0)
    answer = _create(admin, "default", pod)
    assert "written by Vramline alone" in answer.json()["message"]


def test_pods_without_a_gpu_do_not_meet_the_webhook_that_nobody_answers(admin: httpx.Client) -> None:
    assert _create(admin, "default", a_pod("plain")).status_code == httpx.codes.CREATED


# ── Pod Security, judged by the API server itself ────────────────────────────────────────────────────
def test_the_schedulers_pod_may_live_in_its_restricted_namespace(admin: httpx.Client) -> None:
    spec = pod_specs(OBJECTS)["vramline-scheduler"]

    answer = _create(admin, "vramline-system", {"metadata": {"name": "scheduler"}, "spec": spec})

    assert answer.status_code == httpx.codes.CREATED, answer.text
    assert "warning" not in answer.headers


def test_the_agents_pod_needs_exactly_its_exceptions(admin: httpx.Client) -> None:
    spec = {**pod_specs(OBJECTS)["vramline-agent"]}
    del spec["runtimeClassName"]  # there is none in this cluster

    refused = _create(admin, "vramline-system", {"metadata": {"name": "agent"}, "spec": spec})
    accepted = _create(admin, "vramline-agent", {"metadata": {"name": "agent"}, "spec": spec})

    assert refused.status_code == httpx.codes.FORBIDDEN
    offences = refused.json()["message"].partition('violates PodSecurity "restricted:latest": ')[2]
    assert [offence.partition(" (")[0] for offence in offences.split("), ")] == [
        "host namespaces",
        "restricted volume types",
        "runAsNonRoot != true",
        "runAsUser=0",
    ]
    assert accepted.status_code == httpx.codes.CREATED, accepted.text


# ── rights ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def can(admin: httpx.Client) -> Callable[..., bool]:
    """Ask the API server whether a user may do something."""

    def ask(user: str, verb: str, kind: str, *, namespace: str = "", name: str = "") -> bool:
        first, _, rest = kind.partition("/")
        group, resource = (first, rest) if "." in first else ("", kind)
        plural, _, subresource = resource.partition("/")
        attributes = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }
        review = {"spec": {"user": user, "groups": _groups(user), "resourceAttributes": attributes}}
        answer = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=review)
        allowed: bool = answer.json()["status"]["allowed"]
        return allowed

    return ask


def _groups(user: str) -> list[str]:
    namespace = user.split(":")[2] if user.startswith("system:serviceaccount:") else ""
    own = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"] if namespace else []
    return [*own, "system:authenticated"]


@pytest.mark.parametrize(
    "role",
    [each for each in OBJECTS if each["kind"] in {"Role", "ClusterRole"}],
    ids=lambda each: each["kind"],
)
def test_every_right_of_a_role_is_granted(role: Object, can: Callable[..., bool]) -> None:
    user = {"vramline-agent": AGENT, "vramline-reserve": RESERVATION}.get(role["metadata"]["name"], SCHEDULER)
    namespace = role["metadata"].get("namespace", "")

    missing = [
        right
        for right in rights_of(role)
        if not can(user, right[4], right[2], namespace=namespace, name=right[3])
    ]

    assert missing == []


FORBIDDEN = [
    ("patch", "pods", "default", ""),
    ("update", "pods", "default", ""),
    ("create", "pods", "vramline-system", ""),
    ("delete", "pods", "default", ""),
    ("create", "pods/exec", "default", ""),
    ("patch", "nodes", "", "n1"),
    ("update", "nodes", "", "n1"),
    ("patch", "nodes/status", "", "n1"),
    ("get", "secrets", "default", ""),
    ("get", "secrets", "vramline-system", "another"),
    ("list", "secrets", "vramline-system", ""),
    ("create", "secrets", "vramline-system", ""),
    ("get", "secrets", "kube-system", "vramline-webhook-tls"),
    ("get", "configmaps", "vramline-system", ""),
    ("delete", "vramline.io/gpuledgers", "", "n1"),
    ("update", "vramline.io/gpureports/status", "", "n1"),
    ("patch", "admissionregistration.k8s.io/mutatingwebhookconfigurations", "", "another"),
    ("delete", "admissionregistration.k8s.io/mutatingwebhookconfigurations", "", "vramline"),
    ("patch", "admissionregistration.k8s.io/validatingadmissionpolicies", "", "vramline-sealed-keys"),
    ("update", "coordination.k8s.io/leases", "kube-system", "kube-scheduler"),
    ("update", "coordination.k8s.io/leases", "kube-node-lease", "n1"),
    ("create", "serviceaccounts/token", "vramline-system", "vramline-scheduler"),
    ("impersonate", "users", "", ""),
    ("escalate", "rbac.authorization.k8s.io/clusterroles", "", ""),
]
OF_KUBE_SCHEDULER = {
    ("delete", "pods", "default", ""),
    ("update", "coordination.k8s.io/leases", "kube-system", "kube-scheduler"),
}
"""What Kubernetes' own role for kube-scheduler allows, and the account of both therefore may."""


@pytest.fixture(scope="module")
def own_role_alone(admin: httpx.Client) -> str:
    """A user who has Vramline's own roles and nothing of kube-scheduler's."""
    subjects = [{"kind": "User", "name": "vramline-alone", "apiGroup": "rbac.authorization.k8s.io"}]
    for kind, folder in (("ClusterRole", f"{RBAC}"), ("Role", f"{RBAC}/namespaces/vramline-system")):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "vramline-scheduler"}
        binding = {"metadata": {"name": "alone"}, "roleRef": reference, "subjects": subjects}
        admin.post(f"{folder}/{kind.lower()}bindings", json=binding).raise_for_status()
    return "vramline-alone"


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=lambda case: " ".join(filter(None, case)))
def test_the_schedulers_own_role_does_not_allow(
    forbidden: tuple[str, str, str, str], own_role_alone: str, can: Callable[..., bool]
) -> None:
    verb, kind, namespace, name = forbidden

    assert not can(own_role_alone, verb, kind, namespace=namespace, name=name)


@pytest.mark.parametrize("forbidden", FORBIDDEN, ids=lambda case: " ".join(filter(None, case)))
def test_the_schedulers_account_may_beyond_that_only_what_kube_scheduler_needs(
    forbidden: tuple[str, str, str, str], can: Callable[..., bool]
) -> None:
    verb, kind, namespace, name = forbidden

    assert can(SCHEDULER, verb, kind, namespace=namespace, name=name) is (forbidden in OF_KUBE_SCHEDULER)


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        *((verb, "pods") for verb in ("get", "list", "create", "patch", "delete")),
        *((verb, "nodes") for verb in ("list", "update", "delete")),
        *((verb, "vramline.io/gpuledgers") for verb in ("get", "create", "update")),
        ("create", "pods/binding"),
        ("delete", "vramline.io/gpureports"),
        ("get", "secrets"),
    ],
)
def test_the_agent_may_not(verb: str, kind: str, can: Callable[..., bool]) -> None:
    assert not can(AGENT, verb, kind, namespace="default")


# ── the second kube-scheduler ────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def second_scheduler(installed: ControlPlane, admin: httpx.Client) -> Child:
    """The shipped configuration with the account's own rights; nobody listens at the extender's port."""
    admin.post("/api/v1/nodes", json=gpu_node("n1")).raise_for_status()
    configuration = _kube_configuration()
    kubeconfig = installed.issue_user("installed", SCHEDULER, *_groups(SCHEDULER))
    configuration["clientConnection"]["kubeconfig"] = str(kubeconfig)
    configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{free_port()}"
    return installed.start_scheduler(configuration)


def test_kube_scheduler_leads_by_its_own_lease(second_scheduler: Child, admin: httpx.Client) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/vramline-system/leases/vramline-kube-scheduler"

    wait_until(lambda: bool(_holder(admin.get(lease))), "the lease", children=(second_scheduler,))


@pytest.mark.usefixtures("second_scheduler")
def test_pods_without_a_gpu_are_placed_without_vramline(admin: httpx.Client) -> None:
    _create(admin, "default", a_pod("free", spec={"schedulerName": "vramline"})).raise_for_status()

    bound = wait_for_pod(admin, "default", "free", lambda pod: "nodeName" in pod["spec"])

    assert bound["spec"]["nodeName"] == "n1"


def test_kube_scheduler_understands_its_command_line(installed: ControlPlane) -> None:
    path, written = installed.folder / "shipped.json", installed.folder / "written.yaml"
    configuration = _kube_configuration()
    configuration["clientConnection"]["kubeconfig"] = str(installed.folder / "admin.kubeconfig")
    path.write_text(json.dumps(configuration))
    (kube, _) = pod_specs(OBJECTS)["vramline-scheduler"]["containers"]
    shipped = [word for word in kube["command"][1:] if not word.startswith("--config=")]

    command = [installed.commands[kube["command"][0]], *shipped, f"--config={path}"]
    subprocess.run([*command, f"--write-config-to={written}"], check=True, capture_output=True, timeout=60)

    (profile,) = yaml.safe_load(written.read_text())["profiles"]
    fit = next(each["args"] for each in profile["pluginConfig"] if each["name"] == "NodeResourcesFit")
    assert fit["ignoredResources"] == ["vramline.io/managed"]


@pytest.mark.usefixtures("second_scheduler")
@pytest.mark.parametrize("resource", ["vramline.io/managed", "nvidia.com/gpu"])
def test_no_gpu_pod_is_bound_while_vramline_does_not_answer(resource: str, admin: httpx.Client) -> None:
    name = resource.replace("/", "-").replace(".", "-")
    limits = {"resources": {"limits": {resource: "1"}}}
    pod = a_pod(name, container=limits, spec={"schedulerName": "vramline"})
    if resource == "nvidia.com/gpu":
        admin.post("/api/v1/nodes", json=gpu_node("n2", allocatable={resource: "1"})).raise_for_status()
    _create(admin, "default", pod).raise_for_status()

    waiting = wait_for_pod(admin, "default", name, lambda found: bool(found["status"].get("conditions")))

    assert "nodeName" not in waiting["spec"]
    assert "connection refused" in waiting["status"]["conditions"][0]["message"]


def _kube_configuration() -> dict[str, Any]:
    text = find_object(OBJECTS, "ConfigMap", "vramline-kube-scheduler")["data"]["kube-scheduler.yaml"]
    return copy.deepcopy(yaml.safe_load(text))


def _holder(answer: httpx.Response) -> str:
    return answer.json()["spec"].get("holderIdentity", "") if answer.is_success else ""


def a_pod(
    name: str, *, container: Object | None = None, spec: Object | None = None, **metadata: Object
) -> Object:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "i", **(container or {})}], **(spec or {})},
    }


def _create(client: httpx.Client, namespace: str, pod: Object) -> httpx.Response:
    return client.post(f"/api/v1/namespaces/{namespace}/pods", json=pod)
