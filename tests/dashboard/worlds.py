"""Small clusters behind the pages, and what a browser would ask of them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import httpx

import builders
from scheduler.worlds import NOW, cluster_of, pending
from vramline.dashboard.routes import build_pages
from vramline.dashboard.streams import Scene, follow
from vramline.explain.history import DecisionRecord, History, PodOutcome
from vramline.model.claim import ClaimState
from vramline.model.pod import Pod
from vramline.scheduler.app import SchedulerApp, build_app
from vramline.scheduler.journal import Journal
from vramline.scheduler.window import SchedulerWindow
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.files import read_text

__all__ = ["app_of", "busy_cluster", "first_messages", "place", "send", "window_of"]


def busy_cluster() -> EmbeddedCluster:
    """Three nodes: one shared, with a stranger on it; one nobody has looked at; one without cards."""
    cluster = cluster_of(
        builders.node("n1", builders.gpu("GPU-a", slots=4), builders.gpu("GPU-b", index=1), advertised=8),
        builders.node("n2", builders.gpu("GPU-c", node="n2")),
        builders.node("n3"),
        GPU_a=builders.observation(6_000, builders.process(6_000), at=NOW - 1),
        GPU_b=builders.observation(0, at=NOW - 1),
    )
    cluster.fleet.adopt(
        [
            builders.claim(
                1_000, "other/ended", gpu="GPU-b", state=ClaimState.RELEASING, started_at=1.0, ended_at=2.0
            ),
            builders.claim(9_000, "ns/runs", gpu="GPU-a", state=ClaimState.RUNNING, started_at=1.0),
        ]
    )
    return cluster


def window_of(cluster: EmbeddedCluster, history: History | None = None) -> SchedulerWindow:
    """What pages see of a cluster."""
    return SchedulerWindow(cluster, Journal(history or History()))


def app_of(cluster: EmbeddedCluster, history: History | None = None) -> SchedulerApp:
    """The whole application with its pages."""
    return build_app(cluster, history or History(), pages=partial(build_pages, read_text=read_text))


def send(
    app: SchedulerApp, method: str, path: str, content: bytes = b"", host: str = "127.0.0.1:8780"
) -> httpx.Response:
    """Send one request, without a network; an exception inside the application is an exception here."""

    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, content=content, headers={"Host": host})

    return asyncio.run(call())


def place(cluster: EmbeddedCluster, history: History, mib: int, name: str) -> Pod:
    """Let a pod come and be tried once."""
    pod = pending(cluster, builders.ask(mib), name=name)
    outcome = cluster.place(pod.uid, most_nodes=None)
    assert outcome.explanation is not None
    assert outcome.decision is not None
    history.add(
        DecisionRecord(
            at=outcome.decision.at,
            pod=pod.key,
            pod_uid=pod.uid,
            outcome=PodOutcome(outcome.status.value),
            node=outcome.node,
            gpus=outcome.gpus,
            explanation=outcome.explanation,
        )
    )
    return pod


def first_messages(scene: Scene, count: int) -> list[str]:
    """Return the first messages of a page that is followed, without those that tell the time."""

    async def listen() -> list[str]:
        heard: list[str] = []
        messages: AsyncIterator[bytes] = follow(scene, lambda: NOW, beat_s=0.0)
        async for message in messages:
            if not message.startswith(b"event: clock"):
                heard.append(message.decode())
            if len(heard) == count:
                break
        return heard

    return asyncio.run(asyncio.wait_for(listen(), timeout=60.0))
