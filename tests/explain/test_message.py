"""The one line about a pod, whole."""

import numpy as np
import pytest

from builders import ask, claim, fleet_of, gpu, node, observation, process
from vramline.decide.engine import decide
from vramline.explain.decision import Explanation, explain_decision, explain_hosts
from vramline.model.ask import Ask, PolicyName, RealtimeMode, ShareSize
from vramline.model.claim import ClaimState
from vramline.model.fleet import Fleet
from vramline.model.node import NodeProblem, ProblemKind
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.model.rules import Rules

LEAVING = claim(24_000, "ns/old", state=ClaimState.RELEASING)
STRANGER = observation(6_144, process(6_144))
CONFLICT = NodeProblem(ProblemKind.INVENTORY_CONFLICT, "report says 2 cards, labels say 1")


def explained(fleet: Fleet, wish: Ask, rules: Rules | None = None, *, now: float = 100.0) -> Explanation:
    rules = rules or Rules()
    return explain_decision(fleet, decide(fleet, wish, rules, now=now), rules, why=False)


@pytest.mark.parametrize(
    ("fleet", "wish", "message"),
    [
        pytest.param(
            fleet_of(node("n1", gpu(slots=100)), claims=[claim(8_000, f"ns/{i}") for i in range(4)]),
            ask(8_000),
            "0/1 nodes fit: 1 InsufficientVram (closest n1/GPU-a, short by 7,500 MiB)",
            id="the fifth pod of 8000 on a card of 32600",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu("GPU-a", 8_000)),
                node("n2", gpu("GPU-b", cordoned=True)),
                node("n3", gpu("GPU-c", 10_000)),
                claims=[claim(2_500, gpu="GPU-c")],
            ),
            ask(8_000),
            "0/3 nodes fit: 1 GpuTooSmall (closest n1/GPU-a, short by 100 MiB),"
            " 1 CordonedGpu, 1 InsufficientVram",
            id="the nearest miss speaks, whatever is more frequent",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("n1/gpu-0", 8_000))),
            ask(9_000),
            "0/1 nodes fit: 1 GpuTooSmall (closest n1/gpu-0, short by 1,100 MiB)",
            id="a card named after its node is named once",
        ),
        pytest.param(
            fleet_of(node("n1", gpu()), claims=[LEAVING]),
            ask(16_000),
            "0/1 nodes fit: 1 InsufficientVram (closest n1/GPU-a, short by 7,500 MiB);"
            " would fit on n1 once 24,000 MiB are released",
            id="a pod that waits for releasing memory",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu("GPU-a"), gpu("GPU-b")),
                claims=[
                    claim(24_000, "ns/old", gpu="GPU-a", state=ClaimState.RELEASING),
                    claim(20_000, "ns/old", gpu="GPU-b", state=ClaimState.RELEASING),
                ],
            ),
            ask(16_000, gpus=2),
            "0/1 nodes fit: 1 NotEnoughGpus (closest n1, 0 of 2 GPUs fit, short by 11,000 MiB);"
            " would fit on n1 once 44,000 MiB are released",
            id="a pod that waits for two cards",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b")), node("n2")),
            ask(8_000, gpus=4),
            "0/2 nodes fit: 1 NotEnoughGpus (closest n1, 2 of 4 GPUs fit), 1 NoSuchGpu",
            id="too few cards",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(), problem=CONFLICT)),
            ask(),
            "0/1 nodes fit: 1 InventoryConflict (n1: report says 2 cards, labels say 1)",
            id="a node whose sources contradict each other says how",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(model="Tesla T4"))),
            ask(use_models=("h100",)),
            "0/1 nodes fit: 1 WrongModel",
            id="a reason without a number",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(cordoned=True))),
            ask(use_uuids=("GPU-x", "GPU-y")),
            "0/1 nodes fit: 1 WrongUuid; no node has GPU-x or GPU-y",
            id="cards that are nowhere",
        ),
        pytest.param(fleet_of(node("n1")), ask(), "0/1 nodes fit: 1 NoSuchGpu", id="no card anywhere"),
        pytest.param(fleet_of(), ask(), "0/0 nodes fit: there are no nodes", id="no node at all"),
        pytest.param(
            fleet_of(node("n1", gpu(total=600))),
            ask(ShareSize(1, 1_000)),
            "0/1 nodes fit: 1 GpuTooSmall (closest n1/GPU-a)",
            id="a share that rounds to nothing lacks no number of MiB",
        ),
    ],
)
def test_the_message_of_a_pod_that_fits_nowhere(fleet: Fleet, wish: Ask, message: str) -> None:
    assert explained(fleet, wish).message == message


@pytest.mark.parametrize(
    ("fleet", "wish", "message"),
    [
        pytest.param(
            fleet_of(
                *(node(f"n{i}", gpu(f"GPU-{i}", 20_000 + i)) for i in range(3)), node("n9", gpu(total=900))
            ),
            ask(8_000),
            "n0: GPU-0, 8,000 of 19,900 MiB free; best of 3 nodes by vramline",
            id="the best of several",
        ),
        pytest.param(
            fleet_of(node("n1", gpu()), node("n2")),
            ask(8_000),
            "n1: GPU-a, 8,000 of 32,500 MiB free; the only node of 2 that fits",
            id="the only one that fits",
        ),
        pytest.param(
            fleet_of(node("n1", gpu())),
            ask(8_000),
            "n1: GPU-a, 8,000 of 32,500 MiB free; the only node",
            id="the only one there is",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b", 20_000))),
            ask(8_000, gpus=2),
            "n1: 2 GPUs, 8,000 MiB on each, at least 19,900 MiB free there; the only node",
            id="several cards",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-a"), gpu("GPU-b", 20_000))),
            ask(ShareSize(1, 2), gpus=2),
            "n1: 2 GPUs, 9,950 to 16,250 MiB on each, at least 19,900 MiB free there; the only node",
            id="shares of unequal cards",
        ),
    ],
)
def test_the_message_of_a_pod_that_was_placed(fleet: Fleet, wish: Ask, message: str) -> None:
    assert explained(fleet, wish).message == message


@pytest.mark.parametrize(
    ("fleet", "rules", "gpus", "warnings"),
    [
        pytest.param(
            fleet_of(node("n1", gpu(total=8_192)), observations={"GPU-a": STRANGER}),
            Rules(mode=RealtimeMode.WARNING),
            1,
            ["StrictWouldRefuse: GPU-a has 1,948 MiB free by the card, 4,096 asked"],
            id="the card says no, the books say yes",
        ),
        pytest.param(
            fleet_of(node("n1", gpu(total=8_192)), observations={"GPU-a": STRANGER}),
            Rules(mode=RealtimeMode.DISABLED),
            1,
            [],
            id="who does not look is not warned",
        ),
        pytest.param(
            fleet_of(node("n1", gpu())),
            Rules(),
            1,
            ["PlacedByBooks: no observation of GPU-a"],
            id="never seen",
        ),
        pytest.param(
            fleet_of(node("n1", gpu()), observations={"GPU-a": observation(0, at=-20.0)}),
            Rules(),
            1,
            ["PlacedByBooks: the observation of GPU-a is 120 s old"],
            id="not seen lately",
        ),
        pytest.param(
            fleet_of(node("n1", gpu()), observations={"GPU-a": observation(0, utilization_percent=80)}),
            Rules(policy=PolicyName.MOSTIDLE),
            1,
            ["NoIdleGpu: the chosen GPU is not idle"],
            id="no idle card",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu("GPU-a"), gpu("GPU-b")),
                observations={
                    "GPU-a": observation(0, utilization_percent=80),
                    "GPU-b": observation(0, utilization_percent=1),
                },
            ),
            Rules(policy=PolicyName.MOSTIDLE),
            2,
            ["NoIdleGpu: not all 2 chosen GPUs are idle"],
            id="one idle card of two",
        ),
    ],
)
def test_warnings_are_sentences_that_begin_with_their_code(
    fleet: Fleet, rules: Rules, gpus: int, warnings: list[str]
) -> None:
    assert explained(fleet, ask(4_096, gpus=gpus), rules).warnings == warnings


def test_the_message_stays_short_for_thousands_of_nodes() -> None:
    fleet = fleet_of(*(node(f"node-{i:04}", gpu(f"GPU-{i:04}", 9_000 + i)) for i in range(2_000)))

    assert explained(fleet, ask(80_000)).message == (
        "0/2,000 nodes fit: 2,000 GpuTooSmall (closest node-1999/GPU-1999, short by 69,101 MiB)"
    )


def test_a_long_problem_is_cut() -> None:
    problem = NodeProblem(ProblemKind.FROZEN, "because " * 100)
    message = explained(fleet_of(node("n1", gpu(), problem=problem)), ask()).message

    assert message.endswith("…)")
    assert len(message) < 220


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        pytest.param(
            [Reason.INSUFFICIENT_CPU, Reason.NODE_CORDONED, Reason.INSUFFICIENT_CPU],
            (Reason.INSUFFICIENT_CPU, "0/3 nodes fit: 2 InsufficientCpu, 1 NodeCordoned"),
            id="the most frequent reason speaks",
        ),
        pytest.param(
            [Reason.NODE_NOT_READY, Reason.INSUFFICIENT_CPU],
            (Reason.INSUFFICIENT_CPU, "0/2 nodes fit: 1 InsufficientCpu, 1 NodeNotReady"),
            id="among equals the one nearest to fitting",
        ),
        pytest.param([], (Reason.NOT_A_CANDIDATE, "0/0 nodes fit: there are no nodes"), id="no nodes"),
    ],
)
def test_a_pod_without_a_gpu_ask_is_told_what_the_hosts_lack(
    reasons: list[Reason], expected: tuple[Reason, str]
) -> None:
    fleet = fleet_of(*(node(f"n{i}") for i in range(len(reasons))))
    codes = np.array([CODE_OF[reason] for reason in reasons], dtype=np.int8)

    assert explain_hosts(fleet, codes) == expected


def test_a_node_that_left_is_not_counted_among_the_hosts() -> None:
    fleet = fleet_of(node("n1"), node("n2"))
    fleet.remove_node("n1")
    codes = np.array([FITS, CODE_OF[Reason.TOO_MANY_PODS]], dtype=np.int8)

    assert explain_hosts(fleet, codes) == (Reason.TOO_MANY_PODS, "0/1 nodes fit: 1 TooManyPods")
