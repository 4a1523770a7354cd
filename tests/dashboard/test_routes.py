import re

import httpx
import pytest

import builders
from dashboard.worlds import app_of, busy_cluster, place, send
from scheduler.worlds import cluster_of, pending
from vramline.explain.history import History
from vramline.scheduler.app import SchedulerApp


def get(app: SchedulerApp, path: str, host: str = "127.0.0.1:8780") -> httpx.Response:
    return send(app, "GET", path, host=host)


PAGES = (
    "/",
    "/pods",
    "/?order=most-free&state=idle",
    "/pods?status=Pending",
    "/pods/ns/big",
    "/gpus/GPU-a",
    "/gpus/GPU-c",
    "/decisions",
    "/decisions/1",
    "/decisions/2",
    "/what-if",
    "/what-if?pods=3&mib=8000",
)


@pytest.fixture(name="busy")
def give_busy() -> SchedulerApp:
    cluster, history = busy_cluster(), History()
    place(cluster, history, 4_000, "fits")
    place(cluster, history, 900_000, "big")
    return app_of(cluster, history)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_lets_nothing_foreign_in(busy: SchedulerApp, path: str) -> None:
    answer = get(busy, path)

    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text)
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", answer.text)


def test_every_card_is_a_bar_by_its_node(busy: SchedulerApp) -> None:
    page = get(busy, "/").text

    assert [page.count(f"/gpus/GPU-{name}") for name in "abc"] == [1, 1, 1]
    assert page.index("<h2>n1</h2>") < page.index("GPU-b") < page.index("<h2>n2</h2>") < page.index("GPU-c")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        pytest.param("node=n2", "c", id="node"),
        pytest.param("namespace=other", "b", id="namespace"),
        pytest.param("state=unmanaged", "a", id="unmanaged"),
        pytest.param("state=releasing", "b", id="releasing"),
        pytest.param("state=unknown", "c", id="unknown"),
        pytest.param("state=over-committed", "", id="none"),
        pytest.param("model=nothing-like-it", "", id="no such model"),
    ],
)
def test_cards_are_filtered(query: str, shown: str) -> None:
    page = get(app_of(busy_cluster()), f"/?{query}").text

    assert [name for name in "abc" if f'href="/gpus/GPU-{name}"' in page] == list(shown)


def test_pods_that_wait_come_first_with_reason_and_what_would_help(busy: SchedulerApp) -> None:
    page = get(busy, "/pods").text

    assert page.index("/pods/ns/big") < page.index("/pods/ns/fits")
    assert "GpuTooSmall" in page
    assert "if the ask is ≤" in page


def test_a_pod_says_where_it_could_have_gone_and_what_the_arithmetic_was(busy: SchedulerApp) -> None:
    page = get(busy, "/pods/ns/fits").text

    assert "Where else it fitted" in page
    assert "The arithmetic" in page
    assert "[GPU_ALLOCATE] pod=&lt;ns/fits&gt;" in page


def test_a_pod_that_nobody_knows_is_not_found(busy: SchedulerApp) -> None:
    answer = get(busy, "/pods/ns/<script>alert(1)")

    assert answer.status_code == 404
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/?page=0",
        "/decisions/x",
        "/series/GPU-a?hours=0",
        "/?state=odd",
        "/pods?page=a",
        "/?node=" + "x" * 300,
        "/?order=%00",
    ],
)
def test_what_nobody_can_mean_is_refused_with_the_accepted_forms(busy: SchedulerApp, path: str) -> None:
    answer = get(busy, path)

    assert answer.status_code == 400
    assert "accepted" in answer.text


def test_a_card_says_whose_its_processes_are(busy: SchedulerApp) -> None:
    page = get(busy, "/gpus/GPU-a").text

    assert "nobody&#39;s: unmanaged" in page
    assert 'href="/pods/ns/runs"' in page


def test_a_card_that_is_nowhere_is_not_found(busy: SchedulerApp) -> None:
    assert get(busy, "/gpus/GPU-none").status_code == 404
    assert get(busy, "/gpus/n1/gpu-0").status_code == 404


def test_a_decision_can_be_replayed_against_the_present(busy: SchedulerApp) -> None:
    page = get(busy, "/decisions/2").text

    assert "GpuTooSmall" in page
    assert "The same ask now." in page
    assert get(busy, "/decisions/99").status_code == 404


def test_an_empty_cluster_says_so() -> None:
    app = app_of(cluster_of())

    assert "No GPU is known yet" in get(app, "/").text
    assert "No pod that asks for a GPU" in get(app, "/pods").text


def test_a_page_that_came_under_a_foreign_name_is_turned_away(busy: SchedulerApp) -> None:
    assert get(busy, "/", host="rebound.example:8780").status_code == 421
    assert get(busy, "/", host="localhost:8780").status_code == 200


def test_names_are_written_as_text() -> None:
    cluster = cluster_of(builders.node("n1", builders.gpu("<script>")))
    pending(cluster, builders.ask(4_000), name="<b>new")

    assert "<script>" not in get(app_of(cluster), "/").text.replace("<script src", "")
    assert "<b>new" not in get(app_of(cluster), "/pods").text


def test_assets_are_kept_for_good_and_nothing_else_is_given(busy: SchedulerApp) -> None:
    address = re.findall(r'src="(/assets/\w+/htmx\.min\.js)"', get(busy, "/").text)[0]

    assert "immutable" in get(busy, address).headers["cache-control"]
    assert get(busy, "/assets/x/../../routes.py").status_code == 404
    assert get(busy, "/assets/x/none.js").status_code == 404
