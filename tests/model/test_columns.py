"""Columns: what policies may remember by."""

from builders import fleet_of, gpu, node
from vramline.model.node import NodeProblem, ProblemKind


def test_the_layout_is_another_one_only_when_cards_come_go_or_change_service() -> None:
    fleet = fleet_of(node("n1", gpu("GPU-a")), node("n2", gpu("GPU-b")))
    layout = fleet.columns.layout

    fleet.set_node(node("n1", gpu("GPU-a"), labels={"zone": "a"}))
    assert fleet.columns.layout is layout

    fleet.freeze("n1", NodeProblem(ProblemKind.FROZEN, "a test"))
    assert fleet.columns.layout is not layout
