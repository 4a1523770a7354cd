"""Random cards, nodes, asks, claims and observations."""

from hypothesis import strategies as st

from vramline.model.ask import Ask, MibSize, ShareSize, UnsizedSize, WholeSize
from vramline.model.fleet import Fleet
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = ["NOW", "asks", "cards", "fleets", "nodes", "observations"]

NOW = 1_000.0
TOTALS = st.sampled_from([50, 8_192, 16_384, 32_600, 46_068, 81_559])
PODS = st.sampled_from([f"uid-ns/{number}" for number in range(6)])


@st.composite
def cards(draw: st.DrawFn, uuid: str, node: str) -> PhysicalGpu:
    total = draw(TOTALS)
    return PhysicalGpu(
        uuid=uuid,
        node=node,
        total=Mib(total),
        reserved=draw(st.one_of(st.just(NOT_REPORTED), st.sampled_from([Mib(0), Mib(40)]))),
        slots=draw(st.sampled_from([None, None, 1, 2, 99])),
        cores=draw(st.sampled_from([100, 100, 60])),
        numa=draw(st.sampled_from([None, 0, 1])),
        health=draw(st.sampled_from([Health.HEALTHY] * 5 + [Health.SUSPECT])),
        cordoned=draw(st.sampled_from([False] * 5 + [True])),
        mig=draw(st.sampled_from([False] * 7 + [True])),
        model=draw(st.sampled_from(["NVIDIA H100 80GB HBM3", "Tesla T4"])),
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    count = draw(st.integers(0, 4))
    return Node(name=name, gpus=tuple(draw(cards(f"GPU-{name}-{i}", name)) for i in range(count)))


@st.composite
def observations(draw: st.DrawFn, total: int, *, at: float | None = None) -> Observation:
    listed = draw(st.booleans())
    processes = draw(
        st.lists(
            st.builds(
                GpuProcess,
                pid=st.integers(1, 99),
                used=st.one_of(st.integers(0, total), st.just(NOT_REPORTED)),
                pod_uid=st.one_of(PODS, st.none(), st.just(NOT_REPORTED)),
            ),
            max_size=3,
        )
    )
    return Observation(
        at=draw(st.sampled_from([NOW - 200, NOW - 50, NOW])) if at is None else at,
        used=draw(st.one_of(st.integers(0, total).map(Mib), st.just(NOT_REPORTED))),
        processes=tuple(processes) if listed else NOT_REPORTED,
        utilization_percent=draw(st.one_of(st.integers(0, 100), st.just(NOT_REPORTED))),
    )


@st.composite
def asks(draw: st.DrawFn, pod: str = "ns/new") -> Ask:
    size = draw(
        st.one_of(
            st.integers(1, 90_000).map(lambda mib: MibSize(Mib(mib))),
            st.integers(2, 9).map(lambda parts: ShareSize(1, parts)),
            st.just(WholeSize()),
            st.just(UnsizedSize()),
        )
    )
    return Ask(
        pod=pod,
        pod_uid=f"uid-{pod}",
        gpus=draw(st.sampled_from([1, 1, 1, 2, 3])),
        size=size,
        cores=draw(st.sampled_from([0, 0, 30, 100])),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """A fleet with observations and with claims that the engine itself made."""
    from vramline.decide.engine import decide  # noqa: PLC0415 — only this strategy decides
    from vramline.decide.reserve import reservation_of  # noqa: PLC0415

    fleet = Fleet()
    for number in range(draw(st.integers(1, 4))):
        fleet.set_node(draw(nodes(f"n{number}")))
    for node in tuple(fleet.nodes):
        for card in node.gpus:
            if draw(st.booleans()):
                fleet.observe(card.uuid, draw(observations(card.total)))
    for number in range(draw(st.integers(0, 5))):
        decision = decide(fleet, draw(asks(f"ns/{number}")), Rules(), now=NOW)
        if decision.placement is not None:
            fleet.reserve(reservation_of(decision))
            fleet.pod_bound(decision.ask.pod_uid)
            if draw(st.booleans()):
                fleet.pod_started(decision.ask.pod_uid, at=NOW - draw(st.integers(0, 300)))
            if draw(st.booleans()):
                fleet.pod_deleted(decision.ask.pod_uid)
    return fleet
