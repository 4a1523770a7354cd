"""What one decision costs, measured on fleets of several sizes."""

from vramline.bench.decide import DecideFigures, measure_decide


def test_every_size_is_measured_smallest_first_and_pods_find_a_place() -> None:
    heard: list[DecideFigures] = []

    report = measure_decide([12, 6], gpus=2, pods=25, seed=7, report=heard.append)

    assert report.sizes == heard
    assert [(each.nodes, each.gpus_per_node, each.decisions) for each in heard] == [(6, 2, 25), (12, 2, 25)]
    assert all(0 < each.placed <= 25 for each in heard)
    assert all(0 < each.p50_us <= each.p99_us for each in heard)
    assert report.nodes_ratio == 2.0
    assert report.peak_rss_mib > 0


def test_the_same_seed_places_the_same_number_of_pods() -> None:
    runs = [measure_decide([6], gpus=2, pods=25, seed=7, report=lambda _done: None) for _ in range(2)]

    assert runs[0].sizes[0].placed == runs[1].sizes[0].placed
