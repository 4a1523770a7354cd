"""Reservations over HTTP: what is answered, and who is refused."""

import asyncio
from random import Random

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from scheduler.memory_store import MemoryStore
from scheduler.replicas import Replica, gpu_pod
from scheduler.reserving import OTHER, desk_of, reserve
from vramline.errors import TransientError
from vramline.explain.history import History
from vramline.scheduler.app import build_app
from vramline.scheduler.cluster import RealCluster
from vramline.scheduler.reservation_calls import ReservationCalls
from vramline.scheduler.reservation_gate import ReservationGate
from vramline.wire.token_review_v1 import Person


class HttpDoor:
    """The calls of a replica, without a network."""

    def __init__(self, replica: Replica, gate: ReservationGate | None = None) -> None:
        cluster = RealCluster(replica.live, replica.committer)
        app = build_app(cluster, History())
        calls = app.reservation_calls if gate is None else ReservationCalls(cluster, gate)
        calls.desk = desk_of(replica)
        self._app: Starlette = app if gate is None else Starlette(routes=calls.routes())

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        peer: str = "::1",
        host: str = "localhost:8780",
        bearer: str = "",
    ) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, client=(peer, 4711))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(
                    method,
                    path,
                    content=msgspec.json.encode(body),
                    headers={"Content-Type": kind, "Host": host, "Authorization": bearer},
                )

        return asyncio.run(call())


ADDRESS = "/api/v1/reservations"
WISH = {"owner": {"namespace": "ns", "name": "p1"}, "ask": {"mib": 20_000}}


def test_a_reservation_is_made_listed_and_ended_over_http() -> None:
    door = HttpDoor(Replica(MemoryStore(Random(20))))

    made = door.send("POST", ADDRESS, WISH)
    listed = door.send("GET", ADDRESS).json()["reservations"]

    token = made.json()["token"]
    assert (made.status_code, made.json()["node"]) == (201, "n1")
    assert listed == [{**made.json(), "token": None}]
    assert door.send("DELETE", f"{ADDRESS}/{token}").json() == {"status": "ended"}
    assert door.send("DELETE", f"{ADDRESS}/{token}").status_code == 404
    assert door.send("DELETE", f"{ADDRESS}/{listed[0]['id']}").status_code == 404


def test_what_fits_nowhere_comes_back_with_its_explanation() -> None:
    answer = HttpDoor(Replica(MemoryStore(Random(21)))).send(
        "POST", ADDRESS, {**WISH, "ask": {"mib": 8_000, "gpus": 2}}
    )

    assert answer.status_code == 409
    assert answer.json()["error"].startswith("0/2 nodes fit: 2 NotEnoughGpus")
    assert len(answer.json()["explanation"]["nodes"]) == 2


def test_a_follower_answers_503_with_the_leader() -> None:
    replica = Replica(MemoryStore(Random(22)))
    replica.epoch = None

    answer = HttpDoor(replica).send("POST", ADDRESS, WISH)

    assert (answer.status_code, answer.json()["leader"]) == (503, "vramline-7_4711")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"peer": "10.0.0.7"}, 403),
        ({"host": "evil.example:8780"}, 403),
        ({"kind": "text/plain"}, 415),
        ({"kind": ""}, 415),
    ],
    ids=["from another machine", "by another name", "as a web page can send it", "without a kind"],
)
def test_who_may_not_reserve_is_refused(changes: dict[str, str], status: int) -> None:
    store = MemoryStore(Random(23))

    answer = HttpDoor(Replica(store)).send("POST", ADDRESS, WISH, **changes)

    assert (answer.status_code, store.writes) == (status, 0)


def test_reserved_memory_is_shown_as_such() -> None:
    store = MemoryStore(Random(24))
    store.create_pod(gpu_pod(2, 32_000))
    replica = Replica(store)
    reserve(replica, 20_000)
    reserve(replica, 20_000, token=OTHER, name="svc")
    door = HttpDoor(replica)

    cards = door.send("GET", "/api/v1/gpus").json()["gpus"]
    story = door.send("GET", "/api/v1/pods/ns/p2").json()
    metrics = door.send("GET", "/metrics").text

    assert [(card["held_mib"], card["reserved_mib"]) for card in cards] == [(20_000, 20_000)] * 2
    assert cards[0]["notes"] == ["20,000 MiB are reserved in advance for ns/p1, for 600 s more"]
    assert story["now"]["nodes"][0]["gpus"][0]["reserved_mib"] == 20_000
    assert story["now"]["counterfactuals"][-1]["sentence"] == "fits on n1 if the reservation of ns/p1 ends"
    assert 'vramline_gpu_mib{gpu="GPU-n1",node="n1",part="reserved"} 20000.0' in metrics
    assert [pod["pod"] for pod in door.send("GET", "/api/v1/pods").json()["pods"]] == ["ns/p2"]


# ── from outside the machine ─────────────────────────────────────────────────────────────────────────


class ApiServer:
    """Knows ann, who may have pods in `ns`, and bob, who may not."""

    def __init__(self, *, is_up: bool = True) -> None:
        self.is_up = is_up

    async def who(self, token: str) -> Person | None:
        if not self.is_up:
            raise TransientError("no answer")
        return {"a": Person("ann"), "b": Person("bob")}.get(token)

    async def may_create_pods(self, person: Person, namespace: str) -> bool:
        return (person.user, namespace) == ("ann", "ns")


def outside(store: MemoryStore, **server: bool) -> HttpDoor:
    return HttpDoor(Replica(store), ReservationGate(ApiServer(**server)))


FAR = {"peer": "10.0.0.7", "host": "vramline.example"}


def test_who_may_have_pods_in_the_owners_namespace_may_reserve_from_outside() -> None:
    door = outside(MemoryStore(Random(30)))

    made = door.send("POST", ADDRESS, WISH, bearer="Bearer a", **FAR)

    assert made.status_code == 201
    gone = door.send("DELETE", f"{ADDRESS}/{made.json()['token']}", bearer="Bearer a", **FAR)
    assert gone.status_code == 200


@pytest.mark.parametrize(
    ("bearer", "owner", "status"),
    [
        ("", "ns", 401),
        ("Basic a", "ns", 401),
        ("Bearer x", "ns", 401),
        ("Bearer b", "ns", 403),
        ("Bearer a", "other", 403),
    ],
    ids=["nobody", "no token", "a token nobody knows", "no right", "no right there"],
)
def test_who_may_not_have_pods_there_is_refused(bearer: str, owner: str, status: int) -> None:
    store = MemoryStore(Random(31))
    wish = {**WISH, "owner": {"namespace": owner, "name": "p1"}}

    # Even from this machine: at this address everybody shows a token.
    answer = outside(store).send("POST", ADDRESS, wish, bearer=bearer)

    assert (answer.status_code, store.writes) == (status, 0)
    assert answer.json()["error"]


def test_people_from_outside_hear_that_there_is_no_room_and_nothing_of_others() -> None:
    answer = outside(MemoryStore(Random(32))).send(
        "POST", ADDRESS, {**WISH, "ask": {"mib": 40_000}}, bearer="Bearer a", **FAR
    )

    assert (answer.status_code, set(answer.json())) == (409, {"error"})


def test_while_the_api_server_cannot_be_asked_nobody_is_let_in() -> None:
    answer = outside(MemoryStore(Random(33)), is_up=False).send(
        "POST", ADDRESS, WISH, bearer="Bearer a", **FAR
    )

    assert answer.status_code == 503
