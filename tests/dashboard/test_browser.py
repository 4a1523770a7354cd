"""The pages in a real browser: they complain about nothing, ask nobody else, and stay true by themselves."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
from playwright.sync_api import Browser, Page

import builders
from controlplane.processes import soonest
from dashboard.chromium import SIZES, Watched, find_chromium, open_browser, open_page
from dashboard.serving import Served, serve
from dashboard.worlds import app_of, busy_cluster, place
from scheduler.worlds import NOW, cluster_of, pending
from vramline.explain.history import History
from vramline.model.claim import ClaimState
from vramline.simulate.cluster import EmbeddedCluster

pytestmark = pytest.mark.skipif(
    not find_chromium() and not os.environ.get("BROWSER_REQUIRED"),
    reason="no chromium here; `make browser` installs Debian's, as root",
)

PAGES = (
    "/",
    "/pods",
    "/pods/ns/big",
    "/gpus/GPU-a",
    "/decisions",
    "/decisions/1",
    "/what-if?pods=9&mib=8000",
)
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: pasted, namespace: ns, annotations: {vramline.io/vram: 20Gi}}
spec: {containers: [{name: main, image: example/model}]}
"""


@pytest.fixture(name="browser", scope="module")
def give_browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(name="cluster")
def give_cluster() -> EmbeddedCluster:
    return busy_cluster()


@pytest.fixture(name="served")
def give_served(cluster: EmbeddedCluster) -> Iterator[Served]:
    history = History()
    place(cluster, history, 4_000, "fits")
    place(cluster, history, 900_000, "big")
    with serve(app_of(cluster, history)) as served:
        yield served


@pytest.fixture(name="watched")
def give_watched(browser: Browser, served: Served) -> Iterator[Watched]:
    with open_page(browser, served.base) as watched:
        yield watched


def test_no_page_complains_or_asks_anybody_else(watched: Watched) -> None:
    for path in PAGES:
        page = watched.open(path)
        if page.locator("#live").count():
            watched.wait_until_live()

    assert watched.complaints == []


@pytest.mark.parametrize("size", SIZES)
def test_no_page_is_wider_than_the_screen(browser: Browser, served: Served, size: str) -> None:
    with open_page(browser, served.base, size, "dark") as watched:
        wide = {path: watched.open(path).evaluate("document.documentElement.scrollWidth") for path in PAGES}

    assert {path: width for path, width in wide.items() if width > SIZES[size][0]} == {}


def test_a_pod_that_becomes_bindable_changes_on_the_open_page_within_two_seconds(browser: Browser) -> None:
    assert soonest(lambda _: seconds_until_shown_as_bound(browser), within_s=2.0) < 2.0


def seconds_until_shown_as_bound(browser: Browser) -> float:
    cluster, history = cluster_of(builders.node("n1", builders.gpu("GPU-a"))), History()
    cluster.observe("GPU-a", builders.observation(0, at=NOW))
    blocker = place(cluster, history, 20_000, "blocker")
    waiting = place(cluster, history, 20_000, "waiting")

    def make_room() -> None:
        cluster.delete_pod(blocker.uid)
        cluster.end_pod(blocker.uid)
        cluster.fleet.remove_claims(blocker.uid)
        cluster.place(waiting.uid)

    with serve(app_of(cluster, history)) as served, open_page(browser, served.base) as watched:
        page = watched.open("/pods")
        watched.wait_until_live()
        row = page.locator(".row", has_text="waiting")
        assert row.locator(".status").inner_text() == "Pending"
        page.evaluate("window.sameDocument = true")
        served.do(make_room)
        began = time.monotonic()
        row.locator(".status.bound").wait_for(timeout=60_000)
        took_s = time.monotonic() - began

        assert page.evaluate("window.sameDocument")
    return took_s


def test_a_card_that_changes_is_drawn_anew_and_no_other(
    watched: Watched, served: Served, cluster: EmbeddedCluster
) -> None:
    page = watched.open("/")
    watched.wait_until_live()
    mark = "document.querySelectorAll('article.card').forEach((card, i) => card.setAttribute('data-old', i))"
    page.evaluate(mark)
    free = page.locator("article.card", has_text="GPU-b").locator(".free dd")
    before = free.inner_text()
    served.do(lambda: cluster.observe("GPU-b", builders.observation(7_000, builders.process(7_000), at=NOW)))
    page.wait_for_function(
        "([uuid, old]) => [...document.querySelectorAll('article.card')]"
        ".find(card => card.textContent.includes(uuid)).querySelector('.free dd').textContent !== old",
        arg=["GPU-b", before],
        timeout=60_000,
    )

    assert page.locator("article.card[data-old]").count() == 2


def test_what_if_says_what_simulate_says(
    watched: Watched, served: Served, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    served.do(lambda: cluster.delete_pod(builders.uid_of("ns/big")))  # it would be placed as well
    state, pod = tmp_path / "state.json", tmp_path / "pod.yaml"
    state.write_bytes(httpx.get(f"{served.base}/snapshot").content)
    pod.write_text(POD, encoding="utf-8")
    page = watched.open("/what-if")
    page.fill("textarea", POD)
    page.locator("form[method=post] button").click()
    shown = page.locator("#answer tbody tr").inner_text()

    done = subprocess.run(
        [sys.executable, "-m", "vramline", "simulate", "-f", str(state), "-f", str(pod), "-o", "json"],
        capture_output=True,
        check=True,
    )
    told = next(each for each in msgspec.json.decode(done.stdout)["pods"] if each["pod"] == "ns/pasted")

    assert told["status"] == "Bound"
    assert shown.split()[1:4] == [told["node"], told["gpus"][0]["uuid"], f"{told['gpus'][0]['mib']:,}"]


def test_a_page_says_when_the_scheduler_is_gone(browser: Browser) -> None:
    cluster = busy_cluster()
    with open_page(browser, "") as watched:
        with serve(app_of(cluster)) as served:
            watched.base = served.base
            page = watched.open("/")
            watched.wait_until_live()
        page.wait_for_selector("#pulse[data-state=lost]", timeout=60_000)

        assert "No word from the scheduler" in page.locator("#lost").inner_text()


def test_filters_are_reached_and_used_by_keyboard(watched: Watched) -> None:
    page = watched.open("/")
    watched.wait_until_live()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    page.keyboard.type("n2")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"\?node=n2$"))

    assert page.locator("article.card").count() == 1


def test_the_theme_can_be_chosen_and_is_remembered(watched: Watched) -> None:
    page = watched.open("/")
    light = ground(page)
    page.get_by_role("button", name="Dark").click()
    dark = ground(page)
    page.reload()

    assert dark != light
    assert ground(page) == dark


def ground(page: Page) -> str:
    """The colour behind everything."""
    told: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return told


def test_a_page_that_is_long_open_does_not_grow(
    watched: Watched, served: Served, cluster: EmbeddedCluster
) -> None:
    page = watched.open("/")
    watched.wait_until_live()
    count = "document.querySelectorAll('*').length"
    sizes = []
    for used in range(5_111, 5_117):
        look = builders.observation(used, builders.process(used), at=NOW)
        served.do(partial(cluster.observe, "GPU-b", look))
        page.wait_for_function(
            "used => document.body.textContent.includes(used)", arg=f"{used:,}", timeout=60_000
        )
        sizes.append(page.evaluate(count))

    assert len(set(sizes)) == 1


def test_releasing_and_pending_are_told_apart_without_colour(
    watched: Watched, cluster: EmbeddedCluster, served: Served
) -> None:
    served.do(lambda: pending(cluster, builders.ask(3_000), name="later"))
    page = watched.open("/")

    fills = set(
        page.locator(".bar .part").evaluate_all("parts => parts.map(part => part.getAttribute('fill'))")
    )

    assert {"url(#p-releasing)", "url(#p-unmanaged)", "url(#p-margin)", "url(#p-unknown)"} <= fills
    assert ClaimState.RELEASING.lower() in page.locator(".legend").inner_text()
