"""Which node is nearest, and which reason speaks for the pod."""

import numpy as np
import pytest

from builders import ask, claim, fleet_of, gpu, node
from vramline.decide.engine import decide
from vramline.explain.nearness import Survey
from vramline.model.ask import Ask
from vramline.model.fleet import Fleet
from vramline.model.node import NodeProblem, ProblemKind
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.model.rules import Rules

UNKNOWN = NodeProblem(ProblemKind.UNKNOWN_INVENTORY, "nobody tells")


def names_in_order(fleet: Fleet, wish: Ask, hosts: dict[str, Reason] | None = None) -> list[str]:
    decision = decide(fleet, wish, Rules(), now=0.0, candidates=host_codes(fleet, hosts or {}))
    return [fleet.name_of(int(number)) for number in Survey(fleet, decision).first(None)]


def reason_of(fleet: Fleet, wish: Ask, hosts: dict[str, Reason] | None = None) -> Reason | None:
    decision = decide(fleet, wish, Rules(), now=0.0, candidates=host_codes(fleet, hosts or {}))
    return Survey(fleet, decision).speaks


def host_codes(fleet: Fleet, hosts: dict[str, Reason]) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    codes = np.full(fleet.node_count, FITS, dtype=np.int8)
    for name, reason in hosts.items():
        codes[fleet.node_number(name)] = CODE_OF[reason]
    return codes


def test_misses_are_ordered_by_what_they_lack_then_by_reason_then_by_name() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-1", 5_000)),
        node("n2", gpu("GPU-2", slots=1)),
        node("n3", gpu("GPU-3", 7_000)),
        node("n4"),
        node("n5", gpu("GPU-5", 7_000)),
        node("n6", gpu("GPU-6", cordoned=True)),
        node("n7", gpu("GPU-7")),
        claims=[claim(10, gpu="GPU-2"), claim(30_000, "ns/b", gpu="GPU-7")],
    )

    assert names_in_order(fleet, ask(8_000)) == ["n3", "n5", "n1", "n7", "n2", "n6", "n4"]


def test_fitting_nodes_come_first_and_the_chosen_one_leads() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-1", 7_000)),
        node("n2", gpu("GPU-2", 30_000)),
        node("n3", gpu("GPU-3", 20_000)),
    )

    assert names_in_order(fleet, ask(8_000)) == ["n3", "n2", "n1"]


def test_nodes_with_too_few_cards_are_ordered_by_memory_then_by_cards_that_fit() -> None:
    fleet = fleet_of(
        node("n1", gpu("GPU-1a")),
        node("n2", gpu("GPU-2a"), gpu("GPU-2b"), gpu("GPU-2c", 7_000)),
        node("n3", gpu("GPU-3a"), gpu("GPU-3b")),
    )

    assert names_in_order(fleet, ask(8_000, gpus=3)) == ["n2", "n3", "n1"]


@pytest.mark.parametrize(
    ("fleet", "wish", "hosts", "reason"),
    [
        pytest.param(
            fleet_of(
                node("n1", gpu("GPU-1", cordoned=True)),
                node("n2", gpu("GPU-2", cordoned=True)),
                node("n3", gpu("GPU-3", 100_000)),
                node("n4", gpu("GPU-4", 20_000)),
                claims=[claim(70_000, gpu="GPU-3")],
            ),
            ask(30_000),
            {},
            Reason.INSUFFICIENT_VRAM,
            id="fewest MiB short wins over what is more frequent and over what lacks more",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu("GPU-1", 7_000)),
                node("n2", gpu("GPU-2", 9_000)),
                node("n3", gpu("GPU-3", 9_000)),
                claims=[claim(2_000, gpu="GPU-2"), claim(2_000, "ns/b", gpu="GPU-3")],
            ),
            ask(8_000),
            {},
            Reason.INSUFFICIENT_VRAM,
            id="among equally near nodes the most frequent reason",
        ),
        pytest.param(
            fleet_of(
                node("n1", gpu("GPU-1", slots=1)),
                node("n2", gpu("GPU-2", cordoned=True)),
                node("n3", gpu("GPU-3", cordoned=True)),
                claims=[claim(10, gpu="GPU-1")],
            ),
            ask(),
            {},
            Reason.CORDONED_GPU,
            id="where memory is not the matter, the most frequent",
        ),
        pytest.param(
            fleet_of(node("n1"), node("n2"), node("n3", gpu(cordoned=True))),
            ask(),
            {},
            Reason.CORDONED_GPU,
            id="nodes without GPUs do not speak while another has one",
        ),
        pytest.param(
            fleet_of(node("n1"), node("n2"), node("n3", gpu())),
            ask(),
            {"n1": Reason.INSUFFICIENT_CPU, "n2": Reason.INSUFFICIENT_CPU, "n3": Reason.NODE_CORDONED},
            Reason.NODE_CORDONED,
            id="nor do they when their hosts were refused",
        ),
        pytest.param(
            fleet_of(node("n1"), node("n2")),
            ask(),
            {"n1": Reason.INSUFFICIENT_CPU},
            Reason.NO_SUCH_GPU,
            id="without any GPU there is none",
        ),
        pytest.param(fleet_of(), ask(), {}, Reason.NO_SUCH_GPU, id="nor without any node"),
        pytest.param(
            fleet_of(node("n1"), node("n2", problem=UNKNOWN)),
            ask(),
            {},
            Reason.UNKNOWN_INVENTORY,
            id="a node that may have GPUs speaks",
        ),
        pytest.param(
            fleet_of(*(node(f"n{i}", gpu(f"GPU-{i}", cordoned=True)) for i in range(4))),
            ask(),
            {"n1": Reason.NOT_A_CANDIDATE, "n2": Reason.NOT_A_CANDIDATE, "n3": Reason.NOT_A_CANDIDATE},
            Reason.CORDONED_GPU,
            id="nodes nobody asked about do not speak while another was asked",
        ),
        pytest.param(
            fleet_of(node("n1", gpu())),
            ask(),
            {"n1": Reason.NOT_A_CANDIDATE},
            Reason.NOT_A_CANDIDATE,
            id="where no node with GPUs was asked about",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-1")), node("n2", gpu("GPU-2")), node("n3", gpu("GPU-3"))),
            ask(gpus=2),
            {"n1": Reason.NODE_CORDONED, "n2": Reason.NODE_CORDONED},
            Reason.NOT_ENOUGH_GPUS,
            id="a pod that wants several cards has too few",
        ),
        pytest.param(
            fleet_of(node("n1", gpu("GPU-1"), gpu("GPU-2"))),
            ask(gpus=2, use_uuids=("GPU-x",)),
            {},
            Reason.WRONG_UUID,
            id="a card that is nowhere",
        ),
        pytest.param(fleet_of(node("n1", gpu())), ask(), {}, None, id="a pod that was placed has no reason"),
    ],
)
def test_the_reason_of_a_pod(
    fleet: Fleet, wish: Ask, hosts: dict[str, Reason], reason: Reason | None
) -> None:
    assert reason_of(fleet, wish, hosts) == reason


@pytest.mark.parametrize("most", range(1, 8))
@pytest.mark.parametrize("asked", [5_000, 9_000], ids=["one lacks least", "all that lack least are equal"])
def test_the_first_few_are_the_first_of_all_in_whatever_order_nodes_came(most: int, asked: int) -> None:
    sizes = {"n5": 4_500, "n2": 4_000, "n7": 4_000, "n1": 3_000, "n6": 4_000, "n3": 4_000, "n4": 1_000}
    if asked == 9_000:
        sizes = dict.fromkeys(sizes, 8_000)
    fleet = fleet_of(*(node(name, gpu(f"GPU-{name}", mib)) for name, mib in sizes.items()))
    decision = decide(fleet, ask(asked), Rules(), now=0.0)

    first = Survey(fleet, decision).first(most)

    assert decision.placement is None
    assert first.tolist() == Survey(fleet, decision).first(None)[:most].tolist()
    assert fleet.name_of(int(first[0])) == ("n5" if asked == 5_000 else "n1")


@pytest.mark.parametrize("most", range(1, 8))
def test_runners_up_follow_the_best_by_score_and_then_by_name(most: int) -> None:
    sizes = {"n5": 9_000, "n2": 5_000, "n7": 5_000, "n1": 9_000, "n6": 8_000, "n3": 1_000}
    fleet = fleet_of(*(node(name, gpu(f"GPU-{name}", mib)) for name, mib in sizes.items()))
    decision = decide(fleet, ask(4_000), Rules(), now=0.0)

    best = [fleet.name_of(int(number)) for number in Survey(fleet, decision).best(most)]

    assert best == ["n2", "n7", "n6", "n1", "n5"][:most]
