"""Which node is the best idle one."""

import msgspec
import pytest

from builders import claim, fleet_of, gpu, node, observation
from vramline.model.fleet import Fleet
from vramline.model.node import Node, NodeProblem, ProblemKind
from vramline.model.observation import Observation
from vramline.model.rules import Rules
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.idle import best_idle_node


def cluster_of(fleet: Fleet, now: float = 100.0) -> EmbeddedCluster:
    cluster = EmbeddedCluster(Rules(), clock=lambda: now)
    cluster.fleet = fleet
    return cluster


def seen(name: str, *loads: int) -> tuple[Node, dict[str, Observation]]:
    """A node whose cards were seen with these utilisations, in percent."""
    cards = [gpu(f"{name}-{index}") for index in range(len(loads))]
    looks = {
        card.uuid: observation(0, utilization_percent=load) for card, load in zip(cards, loads, strict=True)
    }
    return node(name, *cards), looks


def fleet_seen(*nodes: tuple[Node, dict[str, Observation]]) -> Fleet:
    looks = {uuid: look for _, of_node in nodes for uuid, look in of_node.items()}
    return fleet_of(*(each for each, _ in nodes), observations=looks)


@pytest.mark.parametrize(
    ("nodes", "required", "best"),
    [
        pytest.param([seen("a", 90), seen("b", 5)], 1, "b", id="the idle one"),
        pytest.param([seen("a", 5), seen("b", 5, 5)], 1, "b", id="more idle cards"),
        pytest.param([seen("a", 20, 20), seen("b", 5, 20)], 1, "b", id="calmer"),
        pytest.param([seen("b", 5), seen("a", 5)], 1, "a", id="then by name"),
        pytest.param([seen("a", 5, 90), seen("b", 90, 5)], 2, None, id="no node has enough"),
        pytest.param([seen("a", 30)], 1, None, id="the threshold itself is not idle"),
        pytest.param([], 1, None, id="no node at all"),
    ],
)
def test_ranking(nodes: list[tuple[Node, dict[str, Observation]]], required: int, best: str | None) -> None:
    assert best_idle_node(cluster_of(fleet_seen(*nodes)), required, Rules()) == best


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"ready": False}, id="not ready"),
        pytest.param({"cordoned": True}, id="cordoned"),
        pytest.param({"problem": NodeProblem(ProblemKind.FROZEN, "why")}, id="frozen"),
    ],
)
def test_a_node_out_of_service_is_not_considered(changes: dict[str, object]) -> None:
    idle, looks = seen("a", 0)

    fleet = fleet_seen((msgspec.structs.replace(idle, **changes), looks))

    assert best_idle_node(cluster_of(fleet), 1, Rules()) is None


def test_a_card_nobody_saw_is_idle_only_where_no_pod_holds_anything_on_its_node() -> None:
    unseen = node("a", gpu("GPU-a"), gpu("GPU-b"))

    untouched, touched = fleet_of(unseen), fleet_of(unseen, claims=[claim(100, gpu="GPU-a")])

    assert best_idle_node(cluster_of(untouched), 2, Rules()) == "a"
    assert best_idle_node(cluster_of(touched), 1, Rules()) is None
