import asyncio
from collections.abc import Mapping

import httpx
import pytest
from starlette.applications import Starlette

import builders
from dashboard.worlds import busy_cluster, place, window_of
from vramline.dashboard.routes import build_pages
from vramline.dashboard.token_gate import PAGE, TokenGate
from vramline.errors import TransientError
from vramline.explain.history import History
from vramline.model.claim import ClaimState
from vramline.simulate.files import read_text
from vramline.wire.token_review_v1 import Person

ADMIN, TENANT, STRANGER = "admin-token", "tenant-token", "stranger-token"


class Reviews:
    """An API server that knows three people: one may see all, one a namespace, one nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False
        self.shut_out: set[str] = set()

    async def who(self, token: str) -> Person | None:
        if self.is_away:
            raise TransientError("away")
        self.asked += 1
        names = {ADMIN: "admin", TENANT: "tenant", STRANGER: "stranger"}
        return Person(names[token]) if token in names else None

    async def may_look(self, person: Person, path: str) -> bool:
        return path == PAGE and person.user != "stranger" and person.user not in self.shut_out

    async def may_list_pods(self, person: Person, namespace: str) -> bool:
        return person.user == "admin" or (person.user == "tenant" and namespace == "ns")


class World:
    """Pages behind a gate, on a clock that a test moves."""

    def __init__(self) -> None:
        cluster, history = busy_cluster(), History()
        place(cluster, history, 4_000, "mine")
        place(cluster, history, 60_000, "waits")
        self.reviews, self.at = Reviews(), 0.0
        gate = TokenGate(self.reviews, lambda: ["ns", "other"], lambda: self.at + 1.0)
        routes = build_pages(window_of(cluster, history), read_text=read_text, gate=gate)
        self._app = Starlette(routes=list(routes))
        self.cluster = cluster

    def send(
        self, path: str, token: str = "", *, method: str = "GET", content: bytes = b"", cookie: str = ""
    ) -> httpx.Response:
        headers: Mapping[str, str] = {
            **({"Authorization": f"Bearer {token}"} if token else {}),
            **({"Cookie": cookie} if cookie else {}),
        }

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="https://v.example") as client:
                return await client.request(method, path, headers=headers, content=content)

        return asyncio.run(call())


@pytest.fixture(name="world")
def give_world() -> World:
    return World()


ADDRESSES = (
    "/",
    "/pods",
    "/pods/ns/mine",
    "/gpus/GPU-a",
    "/series/GPU-a",
    "/decisions",
    "/decisions/1",
    "/what-if",
    "/live/cluster",
    "/live/pods",
    "/live/pods/ns/mine",
    "/live/gpus/GPU-a",
    "/live/decisions",
)


@pytest.mark.parametrize("path", ADDRESSES)
def test_nobody_comes_in_without_a_token(world: World, path: str) -> None:
    answer = world.send(path)

    assert answer.status_code == 401
    assert answer.headers["content-security-policy"]
    assert "GPU-a" not in answer.text


@pytest.mark.parametrize(
    ("token", "status"),
    [(ADMIN, 200), (TENANT, 200), (STRANGER, 403), ("forged", 403), ("x" * 20_000, 403)],
    ids=["admin", "tenant", "nobody allowed", "forged", "too long"],
)
def test_the_api_server_and_rbac_decide_who_looks(world: World, token: str, status: int) -> None:
    assert world.send("/", token).status_code == status
    assert world.send("/", cookie=f"__Host-vramline={token}").status_code == status


def test_a_tenant_sees_own_pods_by_name_and_of_others_sums_alone(world: World) -> None:
    cluster, pods = world.send("/", TENANT).text, world.send("/pods", TENANT).text
    card = world.send("/gpus/GPU-b", TENANT).text

    assert "runs" in cluster
    assert "ended" not in cluster + pods + card
    assert "a pod of another namespace" in card
    assert "in namespaces that are not yours: 1 Releasing" in pods
    assert "other/" not in cluster + pods + card


def test_who_may_list_all_pods_sees_all(world: World) -> None:
    assert "other/ended" in world.send("/gpus/GPU-b", ADMIN).text


@pytest.mark.parametrize("path", ["/pods/other/ended", "/decisions/3"])
def test_what_is_not_the_tenants_is_not_found(world: World, path: str) -> None:
    place_for_another(world)

    assert world.send(path, TENANT).status_code == 404


def place_for_another(world: World) -> None:
    """Somebody else's pod holds memory too."""
    world.cluster.fleet.adopt(
        [builders.claim(500, "other/more", gpu="GPU-b", state=ClaimState.RUNNING, started_at=1.0)]
    )


def test_sentences_about_a_tenants_pod_do_not_name_other_peoples(world: World) -> None:
    world.cluster.fleet.adopt(
        [builders.claim(60_000, "other/llm", gpu="GPU-b", state=ClaimState.RUNNING, started_at=1.0)]
    )

    for path in ("/pods/ns/waits", "/pods", "/what-if?mib=70000", "/decisions/2"):
        assert "other/" not in world.send(path, TENANT).text


def test_a_token_is_asked_about_once_a_minute(world: World) -> None:
    for _ in range(3):
        world.send("/", ADMIN)
    first = world.reviews.asked
    world.at = 61.0
    world.reviews.shut_out.add("admin")
    answer = world.send("/", ADMIN)

    assert (first, world.reviews.asked) == (1, 2)
    assert answer.status_code == 403


def test_while_the_api_server_is_away_nobody_new_comes_in(world: World) -> None:
    world.reviews.is_away = True

    assert world.send("/", ADMIN).status_code == 503


def test_signing_in_leaves_a_cookie_that_no_script_reads_and_no_other_site_sends(world: World) -> None:
    answer = world.send("/sign-in", method="POST", content=f"token={TENANT}".encode())
    cookie = answer.headers["set-cookie"]

    assert answer.status_code == 303
    assert all(word in cookie for word in ("__Host-", "HttpOnly", "Secure", "SameSite=strict", "Path=/"))
    assert world.send("/", cookie=cookie.partition(";")[0]).status_code == 200
    assert "Max-Age=0" in world.send("/sign-out", method="POST").headers["set-cookie"]


@pytest.mark.parametrize("content", [b"", b"token=", b"token=forged", b"x" * 50_000, b"token=%00", b"\xff"])
def test_what_is_no_token_leaves_no_cookie(world: World, content: bytes) -> None:
    answer = world.send("/sign-in", method="POST", content=content)

    assert 400 <= answer.status_code < 500
    assert "set-cookie" not in answer.headers
