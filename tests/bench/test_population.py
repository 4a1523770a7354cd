"""The cluster that benchmarks make up: what it says is free is what the engine finds free."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.bench.population import RARE_MIB, Population, PopulationShape
from vramline.bench.population_objects import (
    asking_pod,
    ledger_objects,
    node_objects,
    pod_objects,
    report_objects,
)
from vramline.decide.engine import decide
from vramline.kube.objects import LEDGERS, NODES, PODS, REPORTS, Resource, Stored, read_item
from vramline.model.reason import FITS
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject
from vramline.wire.pods import read_pod

T = TypeVar("T")

NOW = 1_800_000_000.0


def read_all(resource: Resource[T], documents: Iterable[dict[str, Any]]) -> list[T]:
    values = []
    for number, document in enumerate(documents, start=1):
        document["metadata"]["resourceVersion"] = str(number)
        item = read_item(resource, msgspec.json.encode(document))
        assert isinstance(item, Stored), item
        values.append(item.value)
    return values


def live_state_of(population: Population) -> LiveState:
    live = LiveState(Rules(), clock=lambda: NOW)
    for node in read_all(NODES, node_objects(population)):
        live.set_node(node)
    for report in read_all(REPORTS, report_objects(population, observed_at=NOW - 1)):
        live.set_report(report)
    for ledger in read_all(LEDGERS, ledger_objects(population)):
        live.set_ledger(ledger)
    for pod in read_all(PODS, pod_objects(population)):
        live.set_pod(pod)
    live.finish_listing_pods()
    return live


def nodes_left(live: LiveState, mib: int, gpus: int) -> set[str]:
    document = asking_pod(10**6, {keys.VRAM: str(mib), keys.GPUS: str(gpus)})
    ask = read_pod(msgspec.convert(document, PodObject)).ask
    assert ask is not None
    codes = decide(live.fleet, ask, live.rules_for(ask), now=NOW).node_codes
    return {live.fleet.name_of(number) for number in range(len(codes)) if codes[number] == FITS}


@given(st.integers(1, 250), st.integers(1, 8), st.integers(1, 600), st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_what_is_free_is_what_the_engine_finds(nodes: int, gpus: int, pods: int, seed: int) -> None:
    population = Population(PopulationShape(nodes=nodes, gpus=gpus, pods=pods, waiting=3, seed=seed))

    live = live_state_of(population)

    for mib in (1, 2_000, 12_000, 30_000, RARE_MIB):
        for cards in (1, 2):
            assert nodes_left(live, mib, cards) == population.nodes_with(mib, cards)


@pytest.mark.parametrize("seed", range(4))
def test_one_card_of_all_can_hold_the_rare_ask(seed: int) -> None:
    population = Population(PopulationShape(nodes=300, pods=1_200, seed=seed))

    assert population.nodes_with(RARE_MIB) == {population.rare_machine.name}
    assert population.nodes_with(RARE_MIB, 2) == set()


def test_the_same_seed_gives_the_same_objects() -> None:
    shape = PopulationShape(nodes=7, pods=20, waiting=5, seed=3)

    assert list(pod_objects(Population(shape))) == list(pod_objects(Population(shape)))


def test_every_ask_that_waits_is_understood() -> None:
    population = Population(PopulationShape(nodes=2, pods=1, waiting=300))

    waiting = list(pod_objects(population))[1:]

    assert all(read_pod(msgspec.convert(pod, PodObject)).ask is not None for pod in waiting)
