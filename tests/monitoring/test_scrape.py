"""A real Prometheus scrapes a living demo in which a ghost and a stranger take memory."""

import asyncio
import json
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from controlplane.processes import wait_until
from monitoring.lists import metrics_in
from monitoring.prometheus import DASHBOARD, Prometheus, prometheus
from vramline.demo.cards import CardProcess
from vramline.demo.life import LivingCluster
from vramline.demo.machines import build_nodes
from vramline.explain.history import History
from vramline.model.pod import PodPhase
from vramline.scheduler.app import build_app
from vramline.scheduler.keeping import Keeper
from vramline.settings import Settings
from vramline.settings.hami_words import HamiMetrics
from vramline.units import Mib

STRANGER_MIB = Mib(3_000)


class World:
    """A demo with one card that a ghost haunts, and another on which a stranger lives."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self.life = LivingCluster(
            build_nodes(4), dice=random.Random(3), clock=self._now, history=History(), settings=Settings()
        )
        self.haunted = self._leave_a_ghost()
        self.strange = self._invite_a_stranger()
        self.life.tick()

    def _now(self) -> float:
        return time.time() + self._ahead_s

    def _leave_a_ghost(self) -> str:
        """Let time fly until a pod runs; delete it, and let its processes stay for ever."""
        cluster = self.life.cluster
        while True:
            self._ahead_s += 1.0
            self.life.tick()
            for uid, pod in cluster.pods.items():
                claims = cluster.fleet.ledger.of_pod(uid)
                gpus = [cluster.fleet.gpu(claim.gpu) for claim in claims]
                if pod.phase is PodPhase.RUNNING and all(gpu and not gpu.unified for gpu in gpus):
                    self.life._plans[uid].leaves_card_at = float("inf")
                    cluster.delete_pod(uid)
                    cluster.end_pod(uid)
                    self._ahead_s += 1.0
                    return claims[0].gpu

    def _invite_a_stranger(self) -> str:
        for uuid, card in self.life.cards.items():
            free = self.life.cluster.fleet.account(uuid).free
            if uuid != self.haunted and not card.gpu.unified and free > STRANGER_MIB:
                card.start(CardProcess(99_999, STRANGER_MIB, None))
                return uuid
        raise AssertionError("no card has room for a stranger")


@contextmanager
def serving(world: World) -> Iterator[str]:
    """Serve the demo on a free port, alive, from a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = Settings(hami_metrics=HamiMetrics.ON)
    keeper = Keeper(world.life.cluster, world.life.history, settings, every_s=0.5)
    app = build_app(
        world.life.cluster, world.life.history, chronicle=keeper.archive, more_figures=keeper.figures
    )
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))

    async def tick() -> None:
        while True:
            world.life.tick()
            await asyncio.sleep(0.5)

    async def live() -> None:
        tasks = [asyncio.create_task(tick()), asyncio.create_task(keeper.run())]
        await server.serve(sockets=[listener])
        for task in tasks:
            task.cancel()
        await keeper.close()

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def seen(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the demo at least once."""
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with serving(world) as target, prometheus(folder, target) as running:
        wait_until(lambda: bool(running.firing()), "an alert fires")
        yield running


def test_the_demo_is_scraped_without_a_complaint(seen: Prometheus) -> None:
    (target,) = seen.get("targets")["activeTargets"]

    assert (target["health"], target["lastError"]) == ("up", "")


def test_every_rule_can_be_judged(seen: Prometheus) -> None:
    rules = seen.get("rules")["groups"][0]["rules"]
    wait_until(
        lambda: all(rule["health"] == "ok" for rule in seen.get("rules")["groups"][0]["rules"]),
        "every rule was judged",
    )

    assert len(rules) == 13
    assert not any(rule.get("lastError") for rule in rules)


def test_a_ghost_and_drift_fire_and_no_fault_does(world: World, seen: Prometheus) -> None:
    wait_until(
        lambda: {"VramlineGhostMemory", "VramlineDrift"} <= seen.firing().keys(),
        "both alerts fire",
    )
    firing = seen.firing()

    assert [alert["gpu"] for alert in firing["VramlineGhostMemory"]] == [world.haunted]
    assert world.strange in {alert["gpu"] for alert in firing["VramlineDrift"]}
    assert not firing.keys() & {"VramlineLedgerDisagrees", "VramlineLeaderMissing", "VramlineNodeRefused"}


def test_every_panel_of_the_dashboard_can_be_asked(seen: Prometheus) -> None:
    """No API server, no kube-scheduler, no live looks in an embedded cluster; and perhaps no pod waits."""
    never_here = {
        "vramline_pending_pods",
        "vramline_api_writes_total",
        "vramline_verb_seconds_bucket",
        "vramline_realtime_checks_total",
    }
    wait_until(lambda: without_data(seen) <= never_here, "every other panel has data")


def without_data(seen: Prometheus) -> set[str]:
    """Ask for every panel, and return what those read that get nothing."""
    empty: set[str] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = re.sub(r"\$(node|namespace)", ".*", target["expr"])
            expression = re.sub(r"\$__(rate_interval|range)", "1m", expression)
            if not seen.get("query", query=expression)["result"]:
                empty |= metrics_in(expression)
    return empty


def test_memory_times_time_adds_up_in_prometheus_too(seen: Prometheus) -> None:
    def total(selector: str) -> float:
        result = seen.get("query", query=f"sum(vramline_vram_gib_seconds_total{{{selector}}})")["result"]
        return float(result[0]["value"][1])

    wait_until(lambda: total('part="total"') > 0, "time has passed")
    moment = str(time.time())
    parts = seen.get(
        "query", query='sum(vramline_vram_gib_seconds_total{part!~"total|claimed"})', time=moment
    )["result"][0]["value"][1]
    whole = seen.get("query", query='sum(vramline_vram_gib_seconds_total{part="total"})', time=moment)[
        "result"
    ][0]["value"][1]

    assert float(parts) == pytest.approx(float(whole), rel=1e-9)


def test_hamis_dashboards_find_their_names(world: World, seen: Prometheus) -> None:
    found = seen.get("query", query='hami_gpu_memory_limit_bytes{zone="vGPU"}')["result"]

    assert {each["metric"]["device_uuid"] for each in found} == set(world.life.cards)
