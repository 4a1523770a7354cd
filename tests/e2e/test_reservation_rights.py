"""What the token of a reservation pod is good for: two annotations of its own pod, and nothing else.

And the scheduler's: pods of that namespace, if they are reservation pods.
"""

import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from e2e.admission_world import create_namespace, pods_of
from e2e.test_whole import install
from vramline.settings.platforms import profile_for
from vramline.wire.reservation_pod import ReservationOptions, ReservationSite, build_reservation_pod

NAMESPACE = "vramline-reservations"
ACCOUNT = "vramline-reserve"
OWN = f"{pods_of(NAMESPACE)}/own"
MERGE = {"Content-Type": "application/merge-patch+json"}
WORD = {"vramline.io/reserved-gpu": "GPU-1", "run.ai/reserve_for_gpu_index": "GPU-1"}


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    install(plane, "https://127.0.0.1:1/webhook")
    with plane.client() as client:
        create_namespace(client, "team")
        for namespace, name in ((NAMESPACE, "own"), (NAMESPACE, "other"), ("team", "own")):
            create_pod(client, namespace, name)
        yield client


def create_pod(client: httpx.Client, namespace: str, name: str) -> str:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = {
        "metadata": {"name": name, "labels": {"app": "resource-reservation"}, "annotations": {"a": "b"}},
        "spec": {
            "serviceAccountName": ACCOUNT if namespace == NAMESPACE else "default",
            "automountServiceAccountToken": False,
            "containers": [{"name": "reserve", "image": "example", "securityContext": restricted}],
        },
    }
    made = client.post(pods_of(namespace), json=pod).raise_for_status().json()
    uid: str = made["metadata"]["uid"]
    return uid


def token_for(admin: httpx.Client, pod: str) -> str:
    """A token as kubelet asks for it: bound to a pod."""
    uid = admin.get(f"{pods_of(NAMESPACE)}/{pod}").raise_for_status().json()["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    answer = admin.post(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
        json={"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}},
    )
    token: str = answer.raise_for_status().json()["status"]["token"]
    return token


@pytest.fixture(scope="module")
def as_reservation(plane: ControlPlane, admin: httpx.Client) -> Iterator[httpx.Client]:
    with client_with(plane, token_for(admin, "own")) as client:
        wait_until(lambda: is_in_force(client), "the policy")
        yield client


def client_with(plane: ControlPlane, token: str) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=plane.url, verify=context, headers=headers, timeout=30.0)


def is_in_force(client: httpx.Client) -> bool:
    """Whether a change that must never be allowed is refused, by the policy and not for another reason."""
    answer = patch(client, OWN, {"metadata": {"labels": {"probe": "x"}}}, dry_run=True)
    return "a reservation pod may say which card it holds" in answer.text


def patch(
    client: httpx.Client, path: str, change: dict[str, Any], *, dry_run: bool = False
) -> httpx.Response:
    query = {"dryRun": "All"} if dry_run else {}
    return client.patch(path, json=change, headers=MERGE, params=query)


@pytest.mark.parametrize(
    ("platform", "code"), [("x86", httpx.codes.CREATED), ("tegra", httpx.codes.FORBIDDEN)]
)
def test_its_namespace_lets_in_what_is_restricted_and_a_board_only_where_an_operator_says_so(
    admin: httpx.Client, platform: str, code: int
) -> None:
    site, options = ReservationSite(node="n1", card="GPU-1"), ReservationOptions(image="example")
    pod = build_reservation_pod(site, profile_for(platform, ""), options)

    answer = admin.post(pods_of(NAMESPACE), json=pod, params={"dryRun": "All"})

    assert answer.status_code == code, answer.text
    assert answer.is_success or 'violates PodSecurity "restricted' in answer.json()["message"]


def test_it_says_which_card_it_holds_and_says_it_again(
    admin: httpx.Client, as_reservation: httpx.Client
) -> None:
    word = {"metadata": {"annotations": WORD}}

    codes = [patch(as_reservation, OWN, word).status_code for _ in range(2)]

    assert codes == [200, 200]
    assert admin.get(OWN).json()["metadata"]["annotations"] == {"a": "b", **WORD}


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "the word of another reservation": (f"{pods_of(NAMESPACE)}/other", {"metadata": {"annotations": WORD}}),
    "nothing at all of another": (f"{pods_of(NAMESPACE)}/other", {}),
    "one of its name elsewhere": (f"{pods_of('team')}/own", {"metadata": {"annotations": WORD}}),
    "another annotation": (OWN, {"metadata": {"annotations": {**WORD, "c": "d"}}}),
    "the end of an annotation": (OWN, {"metadata": {"annotations": {**WORD, "a": None}}}),
    "the end of its word": (OWN, {"metadata": {"annotations": dict.fromkeys(WORD)}}),
    "a word without end": (OWN, {"metadata": {"annotations": dict.fromkeys(WORD, "x" * 81)}}),
    "a label": (OWN, {"metadata": {"annotations": WORD, "labels": {"app": "other"}}}),
    "a finalizer": (OWN, {"metadata": {"annotations": WORD, "finalizers": ["example.com/stay"]}}),
    "its deadline": (OWN, {"metadata": {"annotations": WORD}, "spec": {"activeDeadlineSeconds": 1}}),
    "its status": (f"{OWN}/status", {"status": {"phase": "Failed"}}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_changes_nothing_else(as_reservation: httpx.Client, what: str) -> None:
    path, change = CHANGES[what]

    assert patch(as_reservation, path, change, dry_run=True).status_code == httpx.codes.FORBIDDEN


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", OWN),
        ("GET", pods_of(NAMESPACE)),
        ("DELETE", OWN),
        ("POST", pods_of(NAMESPACE)),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/apis/vramline.io/v1alpha1/gpuledgers"),
    ],
)
def test_it_reads_and_makes_nothing(as_reservation: httpx.Client, method: str, path: str) -> None:
    body = {"metadata": {"name": "more"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    answer = as_reservation.request(method, path, json=body if method == "POST" else None)

    assert answer.status_code == httpx.codes.FORBIDDEN


@pytest.mark.usefixtures("as_reservation")
def test_the_token_of_a_pod_that_was_replaced_is_no_good_for_its_successor(
    plane: ControlPlane, admin: httpx.Client
) -> None:
    create_pod(admin, NAMESPACE, "again")
    token = token_for(admin, "again")
    admin.delete(f"{pods_of(NAMESPACE)}/again", params={"gracePeriodSeconds": 0}).raise_for_status()
    create_pod(admin, NAMESPACE, "again")

    with client_with(plane, token) as client:
        answer = patch(client, f"{pods_of(NAMESPACE)}/again", {"metadata": {"annotations": WORD}})

    assert answer.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}


SCHEDULER = {"Impersonate-User": "system:serviceaccount:vramline-system:vramline-scheduler"}


def reservation() -> dict[str, Any]:
    site, options = ReservationSite(node="n1", card="GPU-7"), ReservationOptions(image="example")
    pod: dict[str, Any] = build_reservation_pod(site, profile_for("x86", ""), options)
    return pod


def make_as_scheduler(admin: httpx.Client, pod: dict[str, Any], namespace: str = NAMESPACE) -> httpx.Response:
    return admin.post(pods_of(namespace), json=pod, params={"dryRun": "All"}, headers=SCHEDULER)


@pytest.fixture(scope="module")
def guarded(admin: httpx.Client) -> httpx.Client:
    """A cluster with boards: Pod Security lets everything into the namespace, the policy speaks alone."""
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    patch(admin, f"/api/v1/namespaces/{NAMESPACE}", level).raise_for_status()
    pod = reservation()
    pod["spec"]["hostNetwork"] = True
    wait_until(lambda: "and no other pod" in make_as_scheduler(admin, pod).text, "the policy")
    return admin


def test_the_scheduler_makes_reservation_pods(guarded: httpx.Client) -> None:
    answer = make_as_scheduler(guarded, reservation())

    assert answer.status_code == httpx.codes.CREATED, answer.text


PODS: dict[str, dict[str, Any]] = {
    "of another name": {"metadata": {"name": "miner"}},
    "without the label": {"metadata": {"labels": {}}},
    "with another account": {"spec": {"serviceAccountName": "default"}},
    "on the host's network": {"spec": {"hostNetwork": True}},
    "among the host's processes": {"spec": {"hostPID": True}},
    "with a secret": {"spec": {"volumes": [{"name": "s", "secret": {"secretName": "pull"}}]}},
    "with a hidden secret": {
        "spec": {"volumes": [{"name": "s", "projected": {"sources": [{"secret": {"name": "pull"}}]}}]}
    },
    "with another container": {"spec": {"initContainers": [{"name": "first", "image": "example"}]}},
    "with another command": {"container": {"command": ["sh"]}},
    "with other arguments": {"container": {"args": ["agent"]}},
    "with a secret in its environment": {"container": {"envFrom": [{"secretRef": {"name": "pull"}}]}},
}


@pytest.mark.parametrize("what", PODS)
def test_the_scheduler_makes_no_pod(guarded: httpx.Client, what: str) -> None:
    pod, change = reservation(), PODS[what]
    pod["metadata"] |= change.get("metadata", {})
    pod["spec"] |= change.get("spec", {})
    pod["spec"]["containers"][0] |= change.get("container", {})

    answer = make_as_scheduler(guarded, pod)

    assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
    assert "and no other pod" in answer.text


def test_the_scheduler_ends_reservation_pods_and_no_other(guarded: httpx.Client) -> None:
    guarded.post(pods_of(NAMESPACE), json=reservation()).raise_for_status()
    name = reservation()["metadata"]["name"]
    codes = [
        guarded.delete(f"{pods_of(NAMESPACE)}/{pod}", params={"dryRun": "All"}, headers=SCHEDULER).status_code
        for pod in (name, "other")
    ]

    assert codes == [httpx.codes.OK, httpx.codes.FORBIDDEN]
