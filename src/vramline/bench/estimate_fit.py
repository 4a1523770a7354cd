"""The measured constants of the estimate, fitted again from runs: on all of them, or without one model's.

What follows from the architecture (weights, cache, the shape of every formula) is not fitted. A constant that
only holds for the runs it was chosen on shows as a larger error of the model that was left out.
"""

import statistics
from collections.abc import Iterable

import msgspec
import numpy as np

from vramline.inference.engines import MEASURED, Batch, Constants, graph_pool
from vramline.inference.estimate import Model, Plan

__all__ = ["Measured", "fit_constants"]

_GIB = 2**30
_BATCH = Batch(1024, 8192)
"""The engine's default on the cards that were measured."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what was served and how, and what the log said, in GiB."""

    model: Model
    plan: Plan
    number_bytes: int
    weights: float
    activation: float
    non_torch: float
    graphs: float
    context: float
    kv_pool: float
    kv_tokens: float

    @property
    def alone(self) -> bool:
        """Whether it ran on a single GPU."""
        return self.plan.tp * self.plan.pp == 1

    @property
    def dense(self) -> bool:
        """Whether every token goes through the same weights."""
        return self.model.architecture.moe is None


def fit_constants(runs: Iterable[Measured]) -> Constants:
    """Return the constants that these runs suggest; one about which they say nothing is as it is."""
    runs = list(runs)
    context = _median([run.context for run in runs if run.alone], MEASURED.context)
    together = [run for run in runs if not run.alone]
    links = _median([run.context - context for run in together if run.dense], MEASURED.links)
    more = [run.context - context - links for run in together if not run.dense]
    graphs, layer_graphs = _fit_graphs([run for run in runs if run.dense])
    extra = [run.graphs - _plain_graphs(run, graphs, layer_graphs) for run in runs if not run.dense]
    all_reduce = _median([run.non_torch for run in runs if run.plan.tp == 2], MEASURED.all_reduce)
    return Constants(
        sampler=_median([each for run in runs for each in _sampler_of(run)], MEASURED.sampler),
        graphs=graphs,
        layer_graphs=layer_graphs,
        expert_graphs=_median(extra, MEASURED.expert_graphs),
        libraries=_median([run.non_torch for run in runs if run.alone], MEASURED.libraries),
        all_reduce=all_reduce,
        peer=_median(
            [(run.non_torch - all_reduce) / (run.plan.tp - 2) for run in runs if run.plan.tp > 2],
            MEASURED.peer,
        ),
        context=context,
        links=links,
        expert_links=_median(more, MEASURED.expert_links),
    )


def _median(values: list[float], otherwise: float) -> float:
    return statistics.median(values) if values else otherwise


def _sampler_of(run: Measured) -> list[float]:
    """Return the bytes a word and sequence, where sampling is what takes most; else nothing."""
    built, b = run.model.architecture, run.number_bytes
    if not run.dense or built.towers or run.plan.pp > 1:
        return []
    passing = 2 * b * _BATCH.tokens * built.hidden
    running = b * _BATCH.tokens * (3 * built.intermediate / run.plan.tp + 4 * built.hidden)
    if run.activation * _GIB <= 1.05 * running:
        return []
    return [(run.activation * _GIB - passing) / (_BATCH.sequences * built.vocab)]


def _fit_graphs(runs: list[Measured]) -> tuple[float, float]:
    """Fit what graphs take for all layers and for each, by relative errors; equal runs count once."""
    once = {(run.model.name, run.plan.tp, run.plan.pp, run.plan.dtype, run.graphs): run for run in runs}
    if len({_layers(run) for run in once.values()}) < 2:
        return MEASURED.graphs, MEASURED.layer_graphs
    rows = np.array([(1.0, _layers(run)) for run in once.values()])
    left = np.array([run.graphs - _pool(run) for run in once.values()])
    weight = 1 / np.array([run.graphs for run in once.values()])
    found = np.linalg.lstsq(rows * weight[:, None], left * weight, rcond=None)[0]
    return float(found[0]), float(found[1])


def _plain_graphs(run: Measured, graphs: float, layer_graphs: float) -> float:
    return graphs + layer_graphs * _layers(run) + _pool(run)


def _layers(run: Measured) -> int:
    return -(-len(run.model.architecture.layers) // run.plan.pp)


def _pool(run: Measured) -> float:
    return graph_pool(run.model.architecture, _BATCH, run.plan.tp, run.plan.pp) / _GIB
