"""The scheduler as a process of its own beside a stand-in for the API server, in the small."""

from vramline.bench.extender import measure_extender
from vramline.bench.population import PopulationShape
from vramline.bench.recovery import measure_recovery


def say_nothing(_done: int, _total: int) -> None:
    """Nobody watches."""


def test_pods_are_placed_through_the_real_extender() -> None:
    shape = PopulationShape(nodes=30, gpus=4, pods=60, waiting=25)

    figures = measure_extender(shape, progress=say_nothing)

    assert (figures.nodes, figures.claims, figures.calls, figures.placed) == (30, 60, 17, 17)
    assert min(figures.filter.cpu_ms, figures.prioritize.cpu_ms, figures.floor.cpu_ms, figures.rss_mib) > 0
    assert figures.filter_over_floor > 0


def test_a_start_ends_in_a_right_decision_with_none_wrong_before() -> None:
    figures = measure_recovery(PopulationShape(nodes=30, gpus=4, pods=60), starts=1, progress=say_nothing)

    assert figures.wrong == 0
    assert figures.right_s > 0
    assert figures.peak_rss_mib > 0
    assert figures.beside_peak_rss_mib >= 0  # there is no such process where there is but one core
