"""The dashboard for people with a token: a real API server says who they are and whose pods they may list."""

from collections.abc import Iterator

import httpx
import pytest

from controlplane.plane import ControlPlane
from controlplane.processes import free_port, wait_until
from controlplane.vramline import add_gpu_node, apply_crds, gpu_pod, run_scheduler
from e2e.streaming import make_room_for_agents, trust

CORE = "/api/v1/namespaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = {"apiGroup": "rbac.authorization.k8s.io"}
PEOPLE_HOST = "vramline-dashboard.vramline-system.svc"
ACCOUNTS = ("everyone", "tenant", "stranger")


@pytest.fixture(name="admin", scope="module")
def give_admin(plane: ControlPlane) -> Iterator[httpx.Client]:
    with plane.client() as client:
        apply_crds(client)
        make_room_for_agents(client)
        make_people(client)
        add_gpu_node(client, "n1", 40_000)
        for namespace in ("mine", "theirs"):
            client.post(f"{CORE}/{namespace}/pods", json=gpu_pod("waits", 90_000)).raise_for_status()
        yield client


@pytest.fixture(name="people", scope="module")
def give_people(plane: ControlPlane, admin: httpx.Client) -> Iterator[httpx.Client]:
    """A client of the dashboard, which trusts the scheduler's certificate alone."""
    pages, agents = free_port(), free_port()
    options = ["--dashboard-listen", f"127.0.0.1:{pages}", "--agent-listen", f"127.0.0.1:{agents}"]
    with (
        run_scheduler(plane, options=options) as process,
        httpx.Client(base_url=f"https://127.0.0.1:{pages}", verify=trust(admin), timeout=30) as client,
    ):
        wait_until(lambda: "waits" in process.client.get("/pods").text, "the pods")
        yield client


def make_people(admin: httpx.Client) -> None:
    """One may look and list all pods, one may look and list those of a namespace, one may do neither."""
    for namespace in ("people", "mine", "theirs"):
        admin.post(CORE, json={"metadata": {"name": namespace}}).raise_for_status()
        if namespace != "people":
            account = {"metadata": {"name": "default"}}
            admin.post(f"{CORE}/{namespace}/serviceaccounts", json=account).raise_for_status()
    for name in ACCOUNTS:
        account = {"metadata": {"name": name}}
        admin.post(f"{CORE}/people/serviceaccounts", json=account).raise_for_status()
    look = [{"nonResourceURLs": ["/vramline/dashboard"], "verbs": ["get"]}]
    pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    for name, rules, who in (("look", look, ("everyone", "tenant")), ("list", pods, ("everyone",))):
        role = {"metadata": {"name": name}, "rules": rules}
        admin.post(f"{RBAC}/clusterroles", json=role).raise_for_status()
        bind(admin, f"{RBAC}/clusterrolebindings", name, who)
    bind(admin, f"{RBAC}/namespaces/mine/rolebindings", "list", ("tenant",))


def bind(admin: httpx.Client, path: str, role: str, who: tuple[str, ...]) -> None:
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "people"} for name in who]
    reference = {**GROUP, "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects}
    admin.post(path, json=binding).raise_for_status()


def see(people: httpx.Client, admin: httpx.Client, name: str, path: str) -> httpx.Response:
    asked = admin.post(f"{CORE}/people/serviceaccounts/{name}/token", json={"spec": {}})
    token = asked.raise_for_status().json()["status"]["token"]
    headers = {"Authorization": f"Bearer {token}", "Host": PEOPLE_HOST}
    return people.get(path, headers=headers, extensions={"sni_hostname": PEOPLE_HOST})


def test_who_shows_no_token_is_asked_for_one(people: httpx.Client) -> None:
    answer = people.get("/pods", extensions={"sni_hostname": PEOPLE_HOST})

    assert answer.status_code == 401
    assert "waits" not in answer.text


def test_who_may_list_all_pods_sees_all(people: httpx.Client, admin: httpx.Client) -> None:
    page = see(people, admin, "everyone", "/pods").raise_for_status().text

    assert "/pods/mine/waits" in page
    assert "/pods/theirs/waits" in page
    assert "system:serviceaccount:people:everyone" in page


def test_a_tenant_sees_own_pods_and_sums_of_the_rest(people: httpx.Client, admin: httpx.Client) -> None:
    page = see(people, admin, "tenant", "/pods").raise_for_status().text

    assert "/pods/mine/waits" in page
    assert "theirs" not in page
    assert "in namespaces that are not yours: 1 Pending" in page
    assert see(people, admin, "tenant", "/pods/theirs/waits").status_code == 404
    assert "GPU-n1-0" in see(people, admin, "tenant", "/").text


def test_who_may_not_look_does_not(people: httpx.Client, admin: httpx.Client) -> None:
    answer = see(people, admin, "stranger", "/")

    assert answer.status_code == 403
    assert "GPU-n1-0" not in answer.text
