"""The shipped roles, held against the calls that are made: none is missing, and none is unused.

The scheduler runs with nothing but its own roles, kube-scheduler beside it with its own and those; proxies
note what both ask for while pods are placed, refused, taken back, evicted and released.
"""

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import httpx
import pytest
import yaml

from controlplane.kubernetes import gpu_node, wait_for_pod
from controlplane.plane import ControlPlane
from controlplane.processes import free_port, wait_until
from controlplane.vramline import VramlineProcess, report_cards, run_scheduler
from e2e.admission_world import create_namespace, pods_of
from e2e.streaming import running_agent
from e2e.test_install import RBAC, SCHEDULER, as_list, kubectl
from e2e.test_whole import AGENT, REPORTS, reviews_are_answered
from faultproxy.faults import Asked, Refuse
from faultproxy.proxy import FaultProxy, fault_proxy
from install.rendered import Object, find_object, pod_specs, rendered
from install.test_roles import BUILT_IN, Right, rights_of
from scheduler.agent_clients import card

NAMESPACE = "vramline-system"
BESIDE = "kube-scheduler-beside"
"""The user that kube-scheduler is here; in the cluster both programs share an account."""
OBJECTS = rendered("--with-agent")
ROLES = [
    each
    for each in OBJECTS
    if each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == "vramline-scheduler"
]
RIGHTS = [right for role in ROLES for right in rights_of(role)]
LEDGER = "/apis/vramline.io/v1alpha1/gpuledgers/sliced"
RESERVATIONS = "/namespaces/vramline-reservations/pods/"
TOTAL, ASK = 32_600, 8_000
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>.+))?)?"
)


class Call(NamedTuple):
    """A request in the words of RBAC."""

    verb: str
    kind: str
    namespace: str
    name: str


def call_of(asked: Asked) -> Call:
    """Say what the API server authorises for a request; a path of no object has an empty kind."""
    found = _PATH.fullmatch(asked.path)
    if found is None:
        return Call(asked.method, "", "", asked.path)
    group, namespace, plural, name, sub = (part or "" for part in found.groups())
    kind = "/".join(filter(None, (group, plural, sub)))
    match asked.method, name:
        case "GET", "":
            verb = "watch" if asked.is_watch else "list"
        case "GET", _:
            verb = "get"
        case "DELETE", _:
            verb = "delete" if name else "deletecollection"
        case method, _:
            verb = VERBS[method]
    return Call(verb, kind, namespace, name)


def allows(right: Right, call: Call) -> bool:
    """Whether a right of a role is one to make this call."""
    _, place, kind, name, verb = right
    is_there = place == "cluster" or call.namespace == (NAMESPACE if place == "own namespace" else place)
    return is_there and (kind, verb) == (call.kind, call.verb) and name in ("", call.name)


def missing(rights: Iterable[Right], calls: Iterable[Call]) -> set[Call]:
    known = list(rights)
    return {call for call in calls if not any(allows(right, call) for right in known)}


def unused(rights: Iterable[Right], calls: Iterable[Call]) -> list[Right]:
    made = set(calls)
    return [right for right in rights if not any(allows(right, call) for call in made)]


def forbidden(asked: Iterable[Asked]) -> set[Call]:
    return {call_of(each) for each in asked if each.code in {401, 403}}


def in_lines(found: Iterable[Call | Right]) -> str:
    return "\n".join(" ".join(filter(None, each)) for each in found)


# ── the judge ────────────────────────────────────────────────────────────────────────────────────────
LISTED = "/apis/vramline.io/v1alpha1/gpuledgers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vramline-system/leases"


@pytest.mark.parametrize(
    ("asked", "call"),
    [
        (Asked("GET", LISTED, "limit=500"), Call("list", "vramline.io/gpuledgers", "", "")),
        (Asked("GET", LISTED, "watch=true"), Call("watch", "vramline.io/gpuledgers", "", "")),
        (Asked("POST", LISTED, ""), Call("create", "vramline.io/gpuledgers", "", "")),
        (Asked("PUT", f"{LISTED}/n", ""), Call("update", "vramline.io/gpuledgers", "", "n")),
        (Asked("DELETE", f"{LISTED}/n", ""), Call("delete", "vramline.io/gpuledgers", "", "n")),
        (Asked("DELETE", LISTED, ""), Call("deletecollection", "vramline.io/gpuledgers", "", "")),
        (Asked("GET", "/api/v1/pods", ""), Call("list", "pods", "", "")),
        (Asked("GET", "/api/v1/namespaces/a/pods/p", ""), Call("get", "pods", "a", "p")),
        (Asked("POST", "/api/v1/namespaces/a/pods/p/binding", ""), Call("create", "pods/binding", "a", "p")),
        (Asked("PATCH", "/api/v1/namespaces/a/pods/p/status", ""), Call("patch", "pods/status", "a", "p")),
        (Asked("GET", "/api/v1/namespaces/a", ""), Call("get", "namespaces", "", "a")),
        (Asked("GET", "/api/v1/namespaces", ""), Call("list", "namespaces", "", "")),
        (
            Asked("GET", f"{LEASES}/l", ""),
            Call("get", "coordination.k8s.io/leases", "vramline-system", "l"),
        ),
        (Asked("GET", "/version", ""), Call("GET", "", "", "/version")),
    ],
    ids=lambda each: f"{each.method} {each.path} {each.query}" if isinstance(each, Asked) else "",
)
def test_a_request_is_put_into_words_of_rbac(asked: Asked, call: Call) -> None:
    assert call_of(asked) == call


ONE_LEASE: Right = ("vramline-scheduler", "own namespace", "coordination.k8s.io/leases", "ours", "get")


@pytest.mark.parametrize(
    "call",
    [
        Call("update", "coordination.k8s.io/leases", NAMESPACE, "ours"),
        Call("get", "coordination.k8s.io/leases", NAMESPACE, "another"),
        Call("get", "coordination.k8s.io/leases", "kube-system", "ours"),
        Call("get", "leases", NAMESPACE, "ours"),
    ],
    ids=["another verb", "another name", "another namespace", "another kind"],
)
def test_a_call_that_no_role_allows_is_missing_and_leaves_the_right_unused(call: Call) -> None:
    assert missing([ONE_LEASE], [call]) == {call}
    assert unused([ONE_LEASE], [call]) == [ONE_LEASE]


def test_a_call_that_is_allowed_uses_the_right() -> None:
    call = Call("get", "coordination.k8s.io/leases", NAMESPACE, "ours")

    assert missing([ONE_LEASE], [call]) == set()
    assert unused([ONE_LEASE], [call]) == []


# ── the programs with the shipped rights ─────────────────────────────────────────────────────────────
class Notes(NamedTuple):
    """What was asked for while everything happened that the scheduler has code for."""

    own: list[Asked]
    beside: list[Asked]
    built_in: list[Right]
    """What kube-scheduler may do without any role of ours."""


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        create_namespace(client, "team")
        client.post(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json={"metadata": {"name": "important"}, "value": 1_000},
        ).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def notes(plane: ControlPlane, admin: httpx.Client) -> Notes:
    """Run both programs through everything, stop them, and return what they asked for."""
    port, agents = free_port(), free_port()
    install(plane, admin, f"https://127.0.0.1:{port}/webhook")
    plane.issue_user("own", SCHEDULER)
    plane.issue_user("beside", BESIDE)
    container = next(
        each for each in pod_specs(OBJECTS)["vramline-scheduler"]["containers"] if each["name"] == "vramline"
    )
    here = ("--config", "--webhook-li", "--agent-li")
    shipped = [word for word in container["args"][1:] if not word.startswith(here)]
    with ExitStack() as running:
        own = running.enter_context(fault_proxy(plane, "own"))
        beside = running.enter_context(fault_proxy(plane, "beside"))
        # Older API servers do not stream what is there already: each of the five kinds is listed then.
        own.add(Refuse(422, reason="Invalid"), query="sendInitialEvents", times=5)
        vramline = running.enter_context(
            run_scheduler(
                plane,
                kubeconfig=own.kubeconfig,
                leads=False,
                options=[
                    *shipped,
                    *("--webhook-listen", f"127.0.0.1:{port}"),
                    *("--agent-listen", f"127.0.0.1:{agents}"),
                ],
                env={
                    "VRAMLINE_RELEASE_GRACE": "1s",
                    "VRAMLINE_RESERVATION_IMAGE": "vramline:test",
                    "POD_NAME": socket.gethostname(),
                },
            )
        )
        plane.start_scheduler(kube_configuration(vramline, beside))
        try:
            wait_until(vramline.leads, "Vramline to lead beside kube-scheduler", children=(vramline.child,))
            wait_until(lambda: reviews_are_answered(admin), "the webhook", children=(vramline.child,))
            use_everything(plane, admin, own)
            with running_agent(admin, agents, "sliced", card("GPU-sliced-0", 0, TOTAL)):
                wait_until(lambda: own.count("POST", "/tokenreviews") > 0, "the review of a token")
        except TimeoutError as error:
            pytest.fail(f"{error}\nforbidden until then:\n{in_lines(forbidden(own.asked))}")
        built_in = [right for name in BUILT_IN for right in rights_of(admin_role(admin, name))]
        return Notes(list(own.asked), list(beside.asked), built_in)


def install(plane: ControlPlane, admin: httpx.Client, url: str) -> None:
    """Apply what is shipped, but for its pods and for kube-scheduler's rights; those go to another user."""
    objects = [
        each
        for each in OBJECTS
        if each["kind"] not in {"Deployment", "DaemonSet"}
        and each.get("roleRef", {}).get("name") not in BUILT_IN
    ]
    for webhook in find_object(objects, "MutatingWebhookConfiguration", "vramline")["webhooks"]:
        webhook["clientConfig"] = {"url": url}
    kubectl(plane, "apply", "-f", "-", stdin=as_list(objects))
    subject = {"kind": "User", "name": BESIDE, "apiGroup": "rbac.authorization.k8s.io"}
    for kind, folder, role in (
        ("Role", f"{RBAC}/namespaces/{NAMESPACE}", "vramline-scheduler"),
        *(("ClusterRole", RBAC, role) for role in sorted(BUILT_IN)),
    ):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        binding = {"metadata": {"name": f"beside:{role}"}, "roleRef": reference, "subjects": [subject]}
        admin.post(f"{folder}/{kind.lower()}bindings", json=binding).raise_for_status()


def kube_configuration(vramline: VramlineProcess, proxy: FaultProxy) -> Object:
    """Return the shipped configuration of kube-scheduler, through the proxy, which understands JSON alone."""
    text = find_object(OBJECTS, "ConfigMap", "vramline-kube-scheduler")["data"]["kube-scheduler.yaml"]
    configuration: Object = yaml.safe_load(text)
    configuration["clientConnection"] |= {
        "kubeconfig": str(proxy.kubeconfig),
        "contentType": "application/json",
        "acceptContentTypes": "application/json",
    }
    configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{vramline.port}"
    return configuration


def admin_role(admin: httpx.Client, name: str) -> Object:
    """Return a ClusterRole as the API server has it; rules about paths name no objects."""
    role: Object = admin.get(f"{RBAC}/clusterroles/{name}").raise_for_status().json()
    return {**role, "kind": "ClusterRole", "rules": [rule for rule in role["rules"] if "resources" in rule]}


def use_everything(plane: ControlPlane, admin: httpx.Client, proxy: FaultProxy) -> None:
    """Place pods undisturbed, after a conflict, and after a promise taken back; refuse, evict, release."""
    with plane.client() as agent:
        agent.headers.update(AGENT)
        wait_until(lambda: agent.get(REPORTS).is_success, "the kind GpuReport")
        node = gpu_node("sliced", allocatable={"nvidia.com/gpu": "100"})
        admin.post("/api/v1/nodes", json=node).raise_for_status()
        report_cards(agent, "sliced", [{"totalMiB": TOTAL, "usedMiB": 0, "processes": []}])
        place(admin, "first")
        admin.delete(pods_of("team") + "/first", params={"gracePeriodSeconds": 0}).raise_for_status()
        wait_until(lambda: is_released(agent, "team/first"), "the release of the first pod")
        wait_until(lambda: proxy.count("DELETE", RESERVATIONS) > 0, "the end of its reservation")
        place(admin, "first")  # its namesake has left a request behind
        proxy.add(Refuse(409, reason="Conflict"), method="POST", path="/bindrequests$")
        place(admin, "second")
        proxy.add(Refuse(409, reason="Conflict"), method="POST", path="/pods/late/binding$")
        place(admin, "late")
        proxy.add(Refuse(422, reason="Invalid"), method="POST", path="/pods/unlucky/binding$")
        place(admin, "unlucky")
        create(admin, "refused")
        wait_until(lambda: proxy.count("POST", "/events") > 0, "an event about the pod that waits")
        create(admin, "important", priority="important")
        wait_until(lambda: is_being_deleted(admin), "an eviction for the more important pod")
        admin.delete(pods_of("team") + "/first", params={"gracePeriodSeconds": 0}).raise_for_status()
        wait_until(lambda: is_released(agent, "team/first"), "the release of what was deleted")
        wait_until(lambda: proxy.count("POST", "/csistoragecapacities") > 0, "the pods that wait to be woken")


def is_being_deleted(admin: httpx.Client) -> bool:
    """Whether somebody has to go: without a kubelet the pod stays, marked as leaving."""
    pods = admin.get(pods_of("team")).json()["items"]
    return any("deletionTimestamp" in pod["metadata"] for pod in pods)


def create(admin: httpx.Client, name: str, *, priority: str = "") -> None:
    """Create a pod as a user writes it."""
    spec: Object = {"containers": [{"name": "main", "image": "example"}]}
    if priority:
        spec["priorityClassName"] = priority
    pod = {"metadata": {"name": name, "annotations": {"gpu-memory": str(ASK)}}, "spec": spec}
    admin.post(pods_of("team"), json=pod).raise_for_status()


def place(admin: httpx.Client, name: str) -> None:
    create(admin, name)
    wait_for_pod(admin, "team", name, lambda pod: "nodeName" in pod["spec"])


def is_released(agent: httpx.Client, pod: str) -> bool:
    """Report the card free and look into the ledger."""
    report_cards(agent, "sliced", [{"totalMiB": TOTAL, "usedMiB": 0, "processes": []}])
    claims = agent.get(LEDGER).json()["spec"]["claims"]
    return all(claim["pod"] != pod for card in claims.values() for claim in card)


def test_nothing_that_is_asked_for_is_forbidden(notes: Notes) -> None:
    refused = forbidden([*notes.own, *notes.beside])

    assert not refused, in_lines(refused)


def test_every_call_of_the_scheduler_is_one_that_its_own_roles_allow(notes: Notes) -> None:
    lacking = missing(RIGHTS, map(call_of, notes.own))

    assert not lacking, f"calls that no role allows:\n{in_lines(lacking)}"


def test_every_right_is_used_by_the_scheduler_or_needed_by_kube_scheduler_beside_it(notes: Notes) -> None:
    needed = missing(notes.built_in, map(call_of, notes.beside))

    left = unused(RIGHTS, [*map(call_of, notes.own), *needed])
    assert not left, f"rights that nothing uses:\n{in_lines(left)}"
