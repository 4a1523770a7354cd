import re
from typing import Any
from urllib.parse import urlencode

import pytest

from dashboard.worlds import app_of, busy_cluster
from dashboard.worlds import send as send_to
from vramline.scheduler.app import SchedulerApp

POD = """
metadata: {name: p, annotations: {vramline.io/vram: 8Gi}}
spec: {containers: [{name: main}]}
"""
DEPLOYMENT = """
kind: Deployment
metadata: {name: d}
spec:
  replicas: 40
  template: {metadata: {annotations: {vramline.io/vram: 8Gi}}, spec: {containers: [{name: main}]}}
"""


@pytest.fixture(name="app")
def give_app() -> SchedulerApp:
    return app_of(busy_cluster())


def paste(app: SchedulerApp, manifest: str) -> Any:
    return send_to(app, "POST", "/what-if", urlencode({"manifest": manifest}).encode())


def fit(page: str) -> tuple[int, int]:
    found = re.search(r'data-asked="(\d+)" data-fit="(\d+)"', page)
    assert found is not None
    return int(found[1]), int(found[2])


def test_equal_pods_are_answered_as_by_the_api(app: SchedulerApp) -> None:
    page = send_to(app, "GET", "/what-if?pods=40&mib=8000").text
    told = send_to(app, "POST", "/api/v1/whatif", b'{"pods": 40, "mib": 8000}').json()

    assert fit(page) == (told["asked"], told["fit"])
    assert f"What blocks the other {told['blocked']['pods']}" in page
    assert told["blocked"]["explanation"]["reason"] in page


def test_a_pasted_pod_is_placed(app: SchedulerApp) -> None:
    answer = paste(app, POD)

    assert answer.status_code == 200
    assert fit(answer.text) == (1, 1)


def test_a_pasted_deployment_counts_its_replicas(app: SchedulerApp) -> None:
    assert fit(paste(app, DEPLOYMENT).text)[0] == 40


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param("", "is empty", id="nothing"),
        pytest.param("a: [", "manifest", id="cut off"),
        pytest.param("- 1", "is not an object", id="a list"),
        pytest.param(f"{POD}---{POD}", "has 2 documents", id="two"),
        pytest.param("metadata: {name: p}\nspec: {containers: [{name: c}]}", "asks for no GPU", id="no ask"),
        pytest.param(POD.replace("8Gi", "8 GB"), "vramline.io/vram", id="a wrong ask"),
        pytest.param(DEPLOYMENT.replace("40", "5000"), "makes 5000 pods", id="too many"),
        pytest.param("<script>alert(1)</script>", "manifest", id="a script"),
    ],
)
def test_what_is_no_question_is_said(app: SchedulerApp, manifest: str, words: str) -> None:
    answer = paste(app, manifest)

    assert answer.status_code == 400
    assert words in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "query", ["mib=x", "mib=0", "mib=-5", "mib=8000&pods=100000", "mib=1&gpus=65", "mib="]
)
def test_numbers_that_cannot_be_are_refused(app: SchedulerApp, query: str) -> None:
    assert send_to(app, "GET", f"/what-if?{query}").status_code == 400


def test_a_manifest_without_end_is_not_read(app: SchedulerApp) -> None:
    assert "is longer than" in paste(app, "a" * 900_000).text


def test_nothing_is_changed() -> None:
    cluster = busy_cluster()
    before = cluster.fleet.generation, len(cluster.fleet.ledger), len(cluster.pods)
    send_to(app_of(cluster), "GET", "/what-if?pods=40&mib=8000")

    assert (cluster.fleet.generation, len(cluster.fleet.ledger), len(cluster.pods)) == before
