"""A start: whatever order the lists come in, the state is that of one object after the other."""

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.bench.population import Population, PopulationShape
from vramline.bench.population_objects import ledger_objects, node_objects, pod_objects, report_objects
from vramline.kube.objects import LEDGERS, NODES, PODS, REPORTS, Resource, Stored, read_item
from vramline.model.counts import COUNTED, SEEN
from vramline.model.node import NodePool
from vramline.model.pod import PodPhase
from vramline.model.rules import Rules
from vramline.scheduler.live import LiveState
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject
from vramline.wire.pods import PodSighting, read_sighting
from vramline.wire.report_v1alpha1 import GpuReport, NodeCheck, ReportedGpu

NOW = 1_800_000_000.0
FIGURES = (*COUNTED, *SEEN, "promise", "slots", "unified", "numa", "static_code", "node_mode")
FEW = Population(PopulationShape(nodes=4, gpus=3, pods=40, waiting=12))
FEW_PODS = [PODS.decode(msgspec.json.encode(each)) for each in pod_objects(FEW)]
T = TypeVar("T")
Step = Callable[[LiveState], None]


def steps_of(
    resource: Resource[T], take: Callable[[LiveState, T], None], documents: Iterable[dict[str, Any]]
) -> list[Step]:
    steps: list[Step] = []
    for number, document in enumerate(documents, start=1):
        document["metadata"]["resourceVersion"] = str(number)
        item = read_item(resource, msgspec.json.encode(document))
        assert isinstance(item, Stored)
        steps.append(lambda live, value=item.value: take(live, value))  # type: ignore[misc]
    return steps


def everything(population: Population) -> list[Step]:
    return [
        *steps_of(NODES, LiveState.set_node, node_objects(population)),
        *steps_of(REPORTS, LiveState.set_report, report_objects(population, observed_at=NOW - 1)),
        *steps_of(LEDGERS, LiveState.set_ledger, ledger_objects(population)),
        *steps_of(PODS, lambda live, pod: live.see_pods([read_sighting(pod)]), pod_objects(population)),
    ]


def state_of(live: LiveState) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for node in sorted(live.fleet.nodes, key=lambda each: each.name):
        for gpu in node.gpus:
            columns, row = live.fleet.columns, live.fleet.columns.row_of[gpu.uuid]
            figures = [repr(getattr(columns, name)[row].item()) for name in FIGURES]  # NaN is NaN
            claims = sorted(live.fleet.ledger.of_card(gpu.uuid), key=lambda claim: claim.pod_uid)
            rows.append((node, gpu, figures, claims, live.fleet.observation(gpu.uuid)))
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_a_list_taken_at_once_is_the_state_of_its_objects_one_by_one(seed: int) -> None:
    steps = everything(Population(PopulationShape(nodes=12, gpus=3, pods=30, waiting=4, seed=seed)))
    one_by_one, at_once = (LiveState(Rules(), clock=lambda: NOW) for _ in range(2))
    for step in steps:
        step(one_by_one)
    one_by_one.finish_listing_pods()

    at_once.start_listing()
    for step in random.Random(seed).sample(steps, len(steps)):
        step(at_once)
    at_once.finish_listing_pods()
    at_once.finish_listing()

    assert state_of(at_once) == state_of(one_by_one)
    hosts = [live.fleet.hosts for live in (one_by_one, at_once)]
    assert hosts[0] is not None
    assert hosts[1] is not None
    assert np.sort(hosts[0].cpu_milli).tolist() == np.sort(hosts[1].cpu_milli).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_nodes_read_ahead_at_any_moments_change_nothing_of_the_state(seed: int) -> None:
    shape = PopulationShape(nodes=150, gpus=3, pods=300, waiting=4, seed=seed)
    steps = everything(Population(shape))
    again = everything(Population(PopulationShape(nodes=150, gpus=2, pods=300, seed=seed)))[:150]
    chance = random.Random(seed)
    order = [*chance.sample(steps, len(steps)), *chance.sample(again, 20)]
    states = []
    for moments in (0, 5):
        live = LiveState(Rules(), clock=lambda: NOW)
        live.start_listing()
        ahead = {chance.randrange(len(order)) for _ in range(moments)}
        reading: Iterator[None] = iter(())
        for number, step in enumerate(order):
            step(live)
            reading = live.read_ahead() if number in ahead else reading
            next(reading, None)
        live.finish_listing_pods()
        live.finish_listing()
        assert list(reading) == []
        hosts = live.fleet.hosts
        assert hosts is not None
        names = live.fleet.names_by_number()
        room = {name: (hosts.cpu_milli[n], hosts.pods[n]) for n, name in enumerate(names) if name is not None}
        states.append((state_of(live), room))

    assert states[0] == states[1]


UUIDS = st.lists(st.sampled_from([f"GPU-{n}" for n in range(9)] + ["", "GPU-1::2"]), max_size=3)
MACHINES = st.lists(
    st.fixed_dictionaries(
        {
            "uuids": st.none() | UUIDS,
            "total": st.sampled_from([16_000, 24_000]),
            "count": st.sampled_from(["", "1", "2", "x"]),
            "check": st.sampled_from([None, "warning", "enabled"]),
            "health": st.sampled_from([None, "Healthy", "Unhealthy"]),
            "pool": st.booleans(),
        }
    ),
    max_size=7,
)


@given(MACHINES, st.booleans(), st.booleans())
@settings(deadline=None)
def test_nodes_read_together_are_those_read_one_by_one_whatever_is_wrong_with_some(
    machines: list[dict[str, Any]], ahead: bool, pooled: bool
) -> None:
    pool = NodePool("pool", "gpu") if pooled else None
    one_by_one, together = (LiveState(Rules(), clock=lambda: NOW, pool=pool) for _ in range(2))
    together.start_listing()
    steps = [step for number, machine in enumerate(machines) for step in _told_of(number, machine)]
    for live in (one_by_one, together):
        for step in steps:
            step(live)
    for _ in together.read_ahead() if ahead else ():
        pass
    together.finish_listing_pods()
    together.finish_listing()
    one_by_one.finish_listing_pods()

    assert sorted(together.fleet.nodes, key=repr) == sorted(one_by_one.fleet.nodes, key=repr)
    assert state_of(together) == state_of(one_by_one)
    assert together.fleet.columns.kinds == one_by_one.fleet.columns.kinds
    assert _codes(together) == _codes(one_by_one)
    assert together.sightings.freed == one_by_one.sightings.freed
    assert _rooms(together) == _rooms(one_by_one)


def _told_of(number: int, machine: dict[str, Any]) -> list[Step]:
    """Return the steps that tell of a node: first its report, if it has one, then itself."""
    name = f"n{number}"
    labels = {"pool": "gpu"} if machine["pool"] else {}
    if machine["count"]:
        labels |= {keys.GFD_COUNT: machine["count"], keys.GFD_MEMORY: str(machine["total"])}
    node = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"pods": "10"}}}
    steps = steps_of(NODES, LiveState.set_node, [node])
    if machine["uuids"] is not None:
        about = {"totalMiB": machine["total"], "usedMiB": 100, "health": machine["health"]}
        gpus = [about | ({"uuid": uuid} if uuid else {}) for uuid in machine["uuids"]]
        report = GpuReport(
            node=name,
            observed_at=NOW - 1,
            gpus=msgspec.convert(gpus, tuple[ReportedGpu, ...]),
            realtime_check=None if machine["check"] is None else NodeCheck(machine["check"]),
        )
        steps.insert(0, lambda live: live.set_report(report))
    return steps


def test_a_node_that_left_while_everything_was_listed_is_not_there() -> None:
    live = LiveState(Rules(), clock=lambda: NOW)
    live.start_listing()
    for step in everything(Population(PopulationShape(nodes=2, gpus=1, pods=2))):
        step(live)
    live.drop_node("gpu-node-00001")

    live.finish_listing()

    assert [node.name for node in live.fleet.nodes] == ["gpu-node-00000"]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_a_pod_with_devices_of_its_own_holds_as_much_after_a_start_as_before(resource: str) -> None:
    population = Population(PopulationShape(nodes=2, gpus=2, pods=2))
    device: dict[str, Any] = {
        "metadata": {"name": "foreign", "namespace": "ns", "uid": "uid-foreign"},
        "spec": {
            "nodeName": "gpu-node-00001",
            "containers": [{"name": "main", "resources": {"limits": {resource: "1"}}}],
        },
        "status": {"phase": "Running"},
    }
    one_by_one, at_once = (LiveState(Rules(), clock=lambda: NOW) for _ in range(2))
    at_once.start_listing()
    for live in (one_by_one, at_once):
        for step in (*everything(population), *steps_of(PODS, LiveState.set_pod, [device])):
            step(live)
        live.finish_listing_pods()
        live.finish_listing()

    assert sum(claim.mib for claim in one_by_one.fleet.ledger.of_pod("uid-foreign")) > 0
    assert state_of(at_once) == state_of(one_by_one)


@pytest.mark.parametrize("seed", range(12))
def test_pods_that_change_while_all_are_listed_are_known_as_if_told_one_by_one(seed: int) -> None:
    population = Population(PopulationShape(nodes=8, gpus=3, pods=40, waiting=12, seed=seed))
    told = [PODS.decode(msgspec.json.encode(each)) for each in pod_objects(population)]
    chance = random.Random(seed)
    steps: list[Step] = [partial(LiveState.see_pod, seen=_sighting(pod, 1, chance)) for pod in told]
    for number, pod in enumerate(chance.choices(told, k=30), start=2):
        uid, again = pod.metadata.uid or "", partial(LiveState.see_pod, seen=_sighting(pod, number, chance))
        gone = partial(LiveState.drop_pod, uid=uid)
        broken = partial(LiveState.set_pod_unreadable, uid=uid, problem="odd")
        choices: list[Step] = [again, gone, broken]
        steps.append(chance.choice(choices))
    others = everything(population)[: -len(told)]
    one_by_one, at_once = (LiveState(Rules(), clock=lambda: NOW) for _ in range(2))
    at_once.start_listing()
    for live in (one_by_one, at_once):
        for step in (*others[: len(others) // 2], *steps[:25], *others[len(others) // 2 :], *steps[25:]):
            step(live)
        live.finish_listing_pods()
    at_once.finish_listing()

    assert state_of(at_once) == state_of(one_by_one)
    assert at_once.pods == one_by_one.pods
    assert at_once.nominees.waiting == one_by_one.nominees.waiting
    assert at_once.fleet.mix.counts == one_by_one.fleet.mix.counts
    assert _rooms(at_once) == _rooms(one_by_one)


@given(st.lists(st.tuples(st.integers(0, 51), st.integers(0, 10**6)), max_size=60), st.integers(0, 2))
@settings(deadline=None, max_examples=25)
def test_pods_seen_together_are_known_as_if_seen_one_by_one(told: list[tuple[int, int]], parts: int) -> None:
    seen = [
        _sighting(FEW_PODS[number], version, random.Random(version))
        for version, (number, _) in enumerate(told, start=1)
    ]
    others = everything(FEW)[: -len(FEW_PODS)]
    one_by_one, together = (LiveState(Rules(), clock=lambda: NOW) for _ in range(2))
    for live in (one_by_one, together):
        live.start_listing()
        for step in others:
            step(live)
    for each in seen:
        one_by_one.see_pod(each)
    cuts = [0, *sorted(chance % (len(seen) + 1) for _, chance in told[:parts]), len(seen)]
    for start, end in pairwise(cuts):
        together.see_pods(seen[start:end])
    for live in (one_by_one, together):
        live.finish_listing_pods()
        live.finish_listing()

    assert state_of(together) == state_of(one_by_one)
    assert together.pods == one_by_one.pods
    assert together.nominees.waiting == one_by_one.nominees.waiting
    assert together.fleet.mix.counts == one_by_one.fleet.mix.counts
    assert _rooms(together) == _rooms(one_by_one)
    assert together.overdue() == one_by_one.overdue()
    assert [together.version_of(uid) for uid in together.pods] == [
        one_by_one.version_of(uid) for uid in together.pods
    ]


def _sighting(pod: PodObject, version: int, chance: random.Random) -> PodSighting:
    """Return a pod as it is, on no node, leaving, or one that cannot be read."""
    seen = msgspec.structs.replace(read_sighting(pod), version=str(version))
    odd = msgspec.structs.replace(seen, pod=None, problem="odd")
    if seen.pod is None:
        return seen
    waits = msgspec.structs.replace(seen.pod, node=None, phase=PodPhase.PENDING, allocation=None)
    leaves = msgspec.structs.replace(seen.pod, phase=PodPhase.FINISHED if seen.pod.node else PodPhase.PENDING)
    other = chance.choice([waits, leaves])
    return chance.choice([seen, seen, seen, msgspec.structs.replace(seen, pod=other), odd])


def _codes(live: LiveState) -> dict[str | None, int]:
    return dict(zip(live.fleet.names_by_number(), live.fleet.node_codes().tolist(), strict=True))


def _rooms(live: LiveState) -> dict[str, tuple[int, int, int]]:
    hosts, names = live.fleet.hosts, live.fleet.names_by_number()
    assert hosts is not None
    columns = (hosts.cpu_milli, hosts.memory_bytes, hosts.pods)
    return {
        name: tuple(int(column[number]) for column in columns)  # type: ignore[misc]
        for number, name in enumerate(names)
        if name is not None
    }
