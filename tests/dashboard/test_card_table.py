import numpy as np

import builders
from dashboard.worlds import busy_cluster
from scheduler.worlds import cluster_of
from vramline.dashboard.card_table import read_table, sum_up
from vramline.model.fleet import DEFAULT_MARGIN
from vramline.scheduler.views import list_gpus


def test_the_table_says_of_every_card_what_the_api_says() -> None:
    cluster = busy_cluster()
    table, told = read_table(cluster), list_gpus(cluster)

    assert [gpu.uuid for gpu in table.layout.gpus] == [card.uuid for card in told]
    assert table.usable.tolist() == [card.usable_mib for card in told]
    assert table.held.tolist() == [card.held_mib for card in told]
    assert table.releasing.tolist() == [card.releasing_mib for card in told]
    assert table.free.tolist() == [card.free_mib for card in told]
    assert table.known.tolist() == [card.basis == "observed" for card in told]
    assert np.where(table.known, table.unmanaged, -1).tolist() == [
        -1 if card.unmanaged_mib is None else card.unmanaged_mib for card in told
    ]


def test_all_parts_of_the_sums_make_up_what_is_usable() -> None:
    cluster = busy_cluster()
    sums = sum_up(cluster.fleet, read_table(cluster))

    assert sums.held + sums.unmanaged + sums.margin + sums.free + sums.unknown - sums.over == sums.usable


def test_memory_of_cards_that_nobody_has_looked_at_is_not_called_free() -> None:
    cluster = cluster_of(builders.node("n1", builders.gpu("GPU-a")))
    sums = sum_up(cluster.fleet, read_table(cluster))

    assert sums.free == 0
    assert sums.unseen == 1
    assert sums.unknown == sums.usable - DEFAULT_MARGIN


def test_the_layout_is_kept_until_a_card_comes_or_goes() -> None:
    cluster = busy_cluster()
    first = read_table(cluster).layout
    again = read_table(cluster, first).layout
    cluster.set_node(builders.node("n9", builders.gpu("GPU-z", node="n9")))
    grown = read_table(cluster, first).layout

    assert again is first
    assert [*first.nodes, "n9"] == grown.nodes


def test_a_cluster_without_cards_adds_up_to_nothing() -> None:
    cluster = cluster_of(builders.node("n1"))
    sums = sum_up(cluster.fleet, read_table(cluster))

    assert (sums.cards, sums.usable, sums.stranded_percent) == (0, 0, 0)
