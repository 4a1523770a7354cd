"""Many cards are counted together as each would be by itself."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.model.claim import Claim, ClaimState
from vramline.model.counts import COUNTED, SEEN, OnCards, count_cards, figures_of, look_at
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import requested_beyond, take_account
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation
from vramline.units import Mib

MARGIN = Mib(100)
PODS = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.integers(0, 50_000).map(Mib)
UNSURE = AMOUNTS | st.just(NOT_REPORTED)
GPUS = st.builds(
    PhysicalGpu,
    uuid=st.just("GPU-1"),
    node=st.just("n"),
    total=st.integers(20_000, 50_000).map(Mib),
    reserved=st.integers(0, 900).map(Mib) | st.just(NOT_REPORTED),
    slots=st.none() | st.integers(1, 4),
    cores=st.sampled_from([100, 200]),
    unified=st.booleans(),
)
CLAIMS = st.lists(
    st.builds(
        Claim,
        pod_uid=PODS,
        pod=st.just("ns/p"),
        gpu=st.just("GPU-1"),
        mib=st.integers(1, 30_000).map(Mib),
        cores=st.integers(0, 100),
        state=st.sampled_from([ClaimState.RESERVED, ClaimState.RUNNING, ClaimState.RELEASING]),
        started_at=st.none() | st.sampled_from([5.0, 10.0, 15.0]),
    ),
    max_size=3,
    unique_by=lambda claim: claim.pod_uid,
)
PROCESSES = st.lists(
    st.builds(GpuProcess, pid=st.just(1), used=UNSURE, pod_uid=PODS | st.none() | st.just(NOT_REPORTED)),
    max_size=4,
)
LOOKS = st.none() | st.builds(
    Observation,
    at=st.just(10.0),
    used=UNSURE,
    processes=PROCESSES.map(tuple) | st.just(NOT_REPORTED),
    utilization_percent=st.integers(0, 100) | st.just(NOT_REPORTED),
    void_at=st.sampled_from([15.0, float("inf")]),
)
REQUESTS = st.dictionaries(PODS, st.integers(1, 20_000), max_size=3)
CARD = st.tuples(GPUS, CLAIMS.map(tuple), LOOKS, REQUESTS)


@settings(max_examples=300, deadline=None)
@given(st.lists(CARD, min_size=1, max_size=5))
def test_many_cards_are_counted_as_each_of_them(
    cards: list[tuple[PhysicalGpu, tuple[Claim, ...], Observation | None, dict[str, int]]],
) -> None:
    alone: list[tuple[Any, ...]] = []
    requested = []
    for gpu, claims, seen, requests in cards:
        account = take_account(gpu, claims, seen, MARGIN, requests)
        figures = figures_of(gpu, account, len(claims), sum(claim.cores for claim in claims))
        alone.append((*figures, *look_at(gpu, seen)))
        requested.append(requested_beyond(claims, requests) if gpu.unified else 0)

    gpus, on_cards, looks, _ = zip(*cards, strict=True)
    together = count_cards(OnCards(gpus, on_cards, looks, requested), MARGIN)

    for name, column in zip((*COUNTED, *SEEN), zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(together[name], np.array(column), err_msg=name)
