"""From manifests to the printed result: replicas never add memory, and nothing is over-promised."""

from hypothesis import given
from hypothesis import strategies as st

from simulate.clusters import card, node, pod, report, run
from vramline.simulate.report import report_run


@given(
    cards=st.integers(1, 3),
    replicas=st.integers(1, 200),
    reported=st.booleans(),
    asks=st.lists(st.integers(1, 40_000), max_size=15),
)
def test_replicas_never_add_memory(cards: int, replicas: int, reported: bool, asks: list[int]) -> None:
    labels = {"gpu.replicas": str(replicas), "gpu.sharing-strategy": "time-slicing"}
    shared = node(cards=cards, labels=labels, allocatable={"nvidia.com/gpu": str(cards * replicas)})
    seen = [report(*(card(f"GPU-{index}", replicas=replicas) for index in range(cards)))] if reported else []

    printed = report_run(run(shared, *seen, *(pod(f"p{number}", mib) for number, mib in enumerate(asks))))

    assert len(printed.gpus) == cards
    for found in printed.gpus:
        assert found.held_mib <= found.usable_mib - found.margin_mib == 32_500
        assert len(found.claims) <= (found.slots or len(asks))
    assert sum(found.held_mib for found in printed.gpus) == sum(
        gpu.mib for each in printed.pods for gpu in each.gpus
    )


@given(replicas=st.integers(2, 64), extra=st.integers(0, 10))
def test_a_plain_ask_gets_a_share_and_all_shares_fit_but_no_more(replicas: int, extra: int) -> None:
    shared = node(labels={"gpu.replicas": str(replicas)}, allocatable={"nvidia.com/gpu": str(replicas)})
    plain = [
        pod(f"p{number}", None, containers=[{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}])
        for number in range(replicas + extra)
    ]

    printed = report_run(run(shared, *plain))

    assert (printed.summary.bound, printed.summary.pending) == (replicas, extra)
    assert {gpu.mib for each in printed.pods for gpu in each.gpus} == {32_500 // replicas}
