"""Nodes without an agent: what others know of their cards, with their name and its age."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import structlog

from kubernetes_builders import hami_card, hami_register, node_object, report
from vramline.model.observation import Observation, ObservationSource
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.scheduler.other_sources import OtherSources
from vramline.settings import read_feeds

DCGM = 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",Hostname="n1"} 6144'


class World:
    """Two nodes: the UUID of the first one's card is known from HAMi, that of the second one's from none."""

    def __init__(self, feeds: str, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self.now = 1_000.0
        self.live = LiveState(Rules(), clock=lambda: self.now)
        self.live.set_node(node_object("n1", annotations=hami_register(hami_card())))
        labels = {"gpu.count": "1", "gpu.memory": "32600", "gpu.product": "A10"}
        self.live.set_node(node_object("n2", labels=labels, allocatable={"nvidia.com/gpu": "1"}))
        self.asked: list[str] = []

        def note(request: httpx.Request) -> httpx.Response:
            self.asked.append(str(request.url))
            return answer(request)

        self.sources = OtherSources(self.live, read_feeds(feeds), transport=httpx.MockTransport(note))

    def ask(self) -> None:
        asyncio.run(self.sources.ask())

    def seen(self, uuid: str = "GPU-a") -> Observation | None:
        return self.live.fleet.observation(uuid)


def page(text: str) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(200, text=text)


def test_dcgm_exporter_tells_what_is_in_use_as_old_as_it_may_be() -> None:
    world = World("dcgm=http://dcgm:9400/metrics", page(DCGM))
    world.ask()

    seen = world.seen()
    assert seen is not None
    assert (seen.used, seen.at, seen.source) == (6_144, 970.0, ObservationSource.DCGM)


def test_a_card_whose_uuid_nobody_told_is_found_by_node_and_index() -> None:
    world = World("dcgm=http://dcgm:9400/metrics", page(DCGM.replace("GPU-a", "GPU-z").replace("n1", "n2")))
    world.ask()

    seen = world.seen("n2/gpu-0")
    assert seen is not None
    assert seen.used == 6_144


def test_hamis_monitor_looks_when_it_is_asked() -> None:
    text = 'hami_host_gpu_memory_used_bytes{node="n1",device_uuid="GPU-a"} 1048576'
    world = World("hami=http://{node}:31992/metrics", page(text))
    world.ask()

    seen = world.seen()
    assert seen is not None
    assert (seen.used, seen.at, seen.source) == (1, 1_000.0, ObservationSource.HAMI)
    assert sorted(world.asked) == ["http://n1:31992/metrics", "http://n2:31992/metrics"]


def test_prometheus_tells_how_old_its_figures_are() -> None:
    labels = {"UUID": "GPU-a", "Hostname": "n1", "gpu": "0"}

    def answer(request: httpx.Request) -> httpx.Response:
        query = request.url.params["query"]
        results: list[dict[str, Any]] = []
        if query.startswith("{__name__=~") and "DCGM_FI_DEV_GPU_UTIL" in query:
            figures = {"FB_USED": "6144", "GPU_UTIL": "17", "GPU_TEMP": "51"}
            results = [
                {"metric": {"__name__": f"DCGM_FI_DEV_{name}", **labels}, "value": [5.0, figure]}
                for name, figure in figures.items()
            ]
        elif query == "time() - timestamp(DCGM_FI_DEV_FB_USED)":
            results = [{"metric": labels, "value": [5.0, "12"]}]
        return httpx.Response(200, content=json.dumps({"status": "success", "data": {"result": results}}))

    world = World("prometheus=http://prometheus:9090", answer)
    world.ask()

    seen = world.seen()
    assert seen is not None
    assert (seen.used, seen.at, seen.source) == (6_144, 1_000.0 - 12.0 - 30.0, ObservationSource.PROMETHEUS)
    assert (seen.utilization_percent, seen.temperature_c) == (17, 51)


def test_our_own_agent_is_believed_instead() -> None:
    world = World("dcgm=http://dcgm:9400/metrics", page(DCGM))
    own = {"uuid": "GPU-a", "totalMiB": 32_600, "usedMiB": 7}
    world.live.set_report(report(own, node="n1", observedAt="1970-01-01T00:16:30Z"))
    world.ask()

    seen = world.seen()
    assert seen is not None
    assert (seen.used, seen.source) == (7, ObservationSource.REPORT)


def test_a_source_that_fails_is_complained_about_once_and_harms_nobody() -> None:
    works = [False]
    world = World(
        "dcgm=http://dcgm:9400/metrics",
        lambda _: httpx.Response(200, text=DCGM) if works[0] else httpx.Response(500),
    )
    with structlog.testing.capture_logs() as lines:
        world.ask()
        world.ask()
        works[0] = True
        world.ask()
        works[0] = False
        world.ask()

    assert [line["event"] for line in lines] == ["source.silent", "source.silent"]
    assert world.seen() is not None


def test_a_stale_word_of_others_is_stale() -> None:
    world = World("dcgm=http://dcgm:9400/metrics", page(DCGM))
    world.ask()
    row = world.live.fleet.columns.row_of["GPU-a"]
    world.now += 59.0
    assert world.live.fleet.columns.is_fresh(row, now=world.now, max_age_s=90.0)

    world.now += 2.0
    assert not world.live.fleet.columns.is_fresh(row, now=world.now, max_age_s=90.0)
