"""Reservations over HTTP: what is answered, and who is refused."""

import asyncio
from random import Random

import httpx
import msgspec
import pytest

from scheduler.memory_store import MemoryStore
from scheduler.replicas import Replica, gpu_pod
from scheduler.reserving import OTHER, desk_of, reserve
from vramline.explain.history import History
from vramline.scheduler.app import build_app
from vramline.scheduler.cluster import RealCluster


class HttpDoor:
    """The calls of a replica, without a network."""

    def __init__(self, replica: Replica) -> None:
        cluster = RealCluster(replica.live, replica.committer)
        self._app = build_app(cluster, History())
        self._app.reservation_calls.desk = desk_of(replica)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        peer: str = "::1",
    ) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, client=(peer, 4711))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(
                    method, path, content=msgspec.json.encode(body), headers={"Content-Type": kind}
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
    [({"peer": "10.0.0.7"}, 403), ({"kind": "text/plain"}, 415), ({"kind": ""}, 415)],
    ids=["from another machine", "as a web page can send it", "without a kind"],
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
