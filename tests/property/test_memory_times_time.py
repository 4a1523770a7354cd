"""Every MiB of every card counts exactly once, at every moment, whoever holds it."""

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builders import claim, gpu, node, observation, process
from vramline.explain.usage import UsagePart, split_card
from vramline.model.law import take_account
from vramline.model.observation import NOT_REPORTED, Observation
from vramline.model.rules import Rules
from vramline.scheduler.metering import UsageMeter
from vramline.simulate.cluster import EmbeddedCluster
from vramline.units import Mib

TOTAL = 32_600
PODS = ("a/one", "a/two", "b/three")
BESIDE = {UsagePart.TOTAL, UsagePart.CLAIMED}

amounts = st.integers(0, 40_000)
claims = st.lists(st.tuples(st.sampled_from(PODS), st.integers(1, 40_000)), unique_by=lambda each: each[0])
processes = st.lists(
    st.builds(
        process,
        st.none() | amounts,
        st.sampled_from([*PODS, "x/stranger", None, NOT_REPORTED]),
        st.integers(1, 9_999),
    ),
    max_size=5,
)
looks = st.none() | st.builds(
    lambda used, listed, own: observation(used, *own, listed=listed),
    st.none() | amounts,
    st.booleans(),
    processes,
)


@given(claims, looks, st.none() | st.integers(0, 600))
def test_the_parts_of_a_card_add_up_to_it(
    held: list[tuple[str, int]], seen: Observation | None, reserved: int | None
) -> None:
    card = gpu(total=TOTAL, reserved=NOT_REPORTED if reserved is None else Mib(reserved))
    promised = [claim(mib, pod) for pod, mib in held]
    account = take_account(card, promised, seen, Mib(100))

    shares = split_card(card, promised, account, seen)

    assert all(share.mib >= 0 for share in shares)
    assert sum(share.mib for share in shares if share.part not in BESIDE) == TOTAL
    assert sum(share.mib for share in shares if share.part is UsagePart.CLAIMED) == sum(
        mib for _, mib in held
    )
    if seen is None:
        assert not any(share.part in {UsagePart.IDLE, UsagePart.USED, UsagePart.WASTED} for share in shares)


@given(st.lists(st.tuples(st.floats(0.0, 500.0), claims, looks), min_size=1, max_size=6))
def test_over_any_time_the_sum_is_memory_times_time(
    steps: list[tuple[float, list[tuple[str, int]], Observation | None]],
) -> None:
    at = 1_000.0
    cluster = EmbeddedCluster(Rules(max_age_s=90.0), clock=lambda: at)
    cluster.set_node(node("n1", gpu(total=TOTAL), gpu("GPU-b", 8_192)))
    meter = UsageMeter(cluster)
    asyncio.run(meter.meter())
    for passed, held, seen in steps:
        cluster.fleet.clear_claims_of_node("n1")
        cluster.fleet.adopt([claim(mib, pod) for pod, mib in held])
        if seen is not None:
            cluster.observe("GPU-a", msgspec.structs.replace(seen, at=at))
        asyncio.run(meter.meter())
        at += passed
        asyncio.run(meter.meter())

    total = sum(amount for (_, part), amount in meter.mib_ms.items() if part is UsagePart.TOTAL)
    parts = sum(amount for (_, part), amount in meter.mib_ms.items() if part not in BESIDE)
    assert parts == total == (TOTAL + 8_192) * (int(at * 1000) - 1_000_000)
