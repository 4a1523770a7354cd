"""What the API says about the past."""

import asyncio

import pytest

from builders import gpu, node
from scheduler.worlds import NOW, Door, cluster_of
from telemetry.records import a_bound
from vramline.explain.chronicle import CardSample
from vramline.explain.history import History
from vramline.telemetry.archive import Archive
from vramline.telemetry.archive_file import CardRow


class Remembering(Archive):
    """An archive in memory that every call can use: each has an event loop of its own."""

    def keep(self, *pods: str, at: float) -> None:
        history = History()
        self.serve(history)
        for pod in pods:
            history.add(a_bound(pod, at=at))
        asyncio.run(self.flush())


@pytest.fixture
def archive() -> Remembering:
    return Remembering(clock=lambda: NOW)


def test_a_pod_that_the_journal_forgot_is_in_the_chronicle(archive: Remembering) -> None:
    archive.keep("ns/yesterday", at=NOW - 86_400)
    door = Door(cluster_of(node("n1", gpu())), chronicle=archive)

    story = door.get("/api/v1/pods/ns/yesterday").json()

    assert story["pod"]["status"] == "Gone"
    assert story["decision"]["at"] == NOW - 86_400
    assert door.get("/api/v1/pods/ns/never").status_code == 404


def test_decisions_are_found_by_pod_by_name_and_before_a_time(archive: Remembering) -> None:
    archive.keep("a/p", "b/p", "a/q", at=NOW - 500)
    door = Door(cluster_of(node("n1", gpu())), chronicle=archive)

    def pods(query: str) -> list[str]:
        return [record["pod"] for record in door.get(f"/api/v1/decisions?{query}").json()["decisions"]]

    assert pods("pod=a/p") == ["a/p"]
    assert sorted(pods("pod=p")) == ["a/p", "b/p"]
    assert pods("before=100") == []
    assert len(pods(f"before={NOW}")) == 3


def test_the_history_of_a_card(archive: Remembering) -> None:
    sample = CardSample(
        at=NOW - 60, usable_mib=32_600, held_mib=1, releasing_mib=0, unmanaged_mib=None, used_mib=None
    )
    archive.keep_cards([CardRow("n1/gpu-0", sample)], [])
    door = Door(cluster_of(node("n1", gpu())), chronicle=archive)

    answer = door.get("/api/v1/gpus/n1/gpu-0/history").json()

    assert answer["gpu"] == "n1/gpu-0"
    assert answer["samples"] == [
        {
            "at": NOW - 60,
            "usable_mib": 32_600,
            "held_mib": 1,
            "releasing_mib": 0,
            "unmanaged_mib": None,
            "used_mib": None,
        }
    ]
    assert door.get(f"/api/v1/gpus/n1/gpu-0/history?until={NOW - 61}").json()["samples"] == []


def test_without_a_chronicle_nothing_is_known_of_the_past() -> None:
    door = Door(cluster_of(node("n1", gpu())))

    assert door.get("/api/v1/history").json()["history"] is None
    assert door.get("/api/v1/gpus/GPU-a/history").json()["samples"] == []
    assert door.get("/api/v1/decisions?pod=p").json()["decisions"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/decisions?before=yesterday",
        "/api/v1/decisions?before=-1",
        "/api/v1/decisions?before=1e5",
        "/api/v1/gpus/GPU-a/history?since=x",
        "/api/v1/gpus/GPU-a/history?until=1&since=2",
        "/api/v1/gpus/GPU-a/history?points=1",
        "/api/v1/gpus/GPU-a/history?points=5001",
        "/api/v1/gpus/GPU-a/history?points=²",
    ],
)
def test_a_question_that_is_none_is_refused_by_name(path: str, archive: Remembering) -> None:
    answer = Door(cluster_of(node("n1", gpu())), chronicle=archive).get(path)

    assert answer.status_code == 400
    assert "query" in answer.json()["error"]
