"""5,000 GPUs: pages stay small, what changed is sent, and an hour of updates leaves nothing behind."""

import asyncio
import gc
import os
import random
import tracemalloc

import pytest

from dashboard.big import big_cluster, change_some
from dashboard.worlds import window_of
from scheduler.worlds import NOW
from vramline.dashboard.cluster_page import NODES_ON_A_PAGE, ClusterPage
from vramline.dashboard.markup import Templates
from vramline.dashboard.queries import CardQuery
from vramline.dashboard.streams import follow
from vramline.dashboard.viewers import EVERYONE
from vramline.simulate.cluster import EmbeddedCluster

ROUNDS = int(os.environ.get("ROUNDS", "24"))
"""7,200 are an hour of an open page."""


@pytest.fixture(name="cluster", scope="module")
def give_cluster() -> EmbeddedCluster:
    return big_cluster()


def test_a_page_of_5000_cards_shows_all_on_the_map_and_some_nodes_in_full(cluster: EmbeddedCluster) -> None:
    page = asyncio.run(ClusterPage(window_of(cluster), Templates()).make(EVERYONE, CardQuery()))

    assert page.count('class="mini"') == 625
    assert page.count('<article class="card"') == NODES_ON_A_PAGE * 8
    assert "5,000 GPUs on 625 nodes, page 1 of 27" in page
    assert len(page) < 3_000_000


def test_an_open_page_hears_of_what_changed_alone_and_leaves_nothing_behind(cluster: EmbeddedCluster) -> None:
    page, dice = ClusterPage(window_of(cluster), Templates()), random.Random(2)
    sizes: list[int] = []
    held: list[int] = []

    async def listen() -> None:
        tracemalloc.start()
        messages = follow(page.follow(EVERYONE, CardQuery()), lambda: NOW, beat_s=0.0)
        async for message in messages:
            if message.startswith(b"event"):
                continue
            sizes.append(len(message))
            if len(sizes) in {ROUNDS // 2, ROUNDS}:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            if len(sizes) == ROUNDS:
                break
            change_some(cluster, dice, 0.01)
        tracemalloc.stop()

    asyncio.run(listen())

    assert max(sizes[1:]) < sizes[0] / 4
    assert held[1] - held[0] < 2 * 2**20
