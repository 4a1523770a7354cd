import numpy as np

import builders
from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules


def two_nodes() -> Fleet:
    fleet = builders.fleet_of(
        builders.node("n1", builders.gpu("GPU-a"), builders.gpu("GPU-b")),
        builders.node("n2", builders.gpu("GPU-c", 16_000, slots=4)),
        builders.node("n3", builders.gpu("GPU-d")),
        claims=[builders.claim(8_000, gpu="GPU-a")],
        observations={"GPU-b": builders.observation(6_000, builders.process(6_000))},
    )
    fleet.remove_node("n3")
    return fleet


def figures_of(fleet: Fleet) -> list[object]:
    columns = fleet.columns
    return [
        {uuid: fleet.account(uuid) for uuid in columns.row_of},
        {name: str(columns.__getattr__(name).tolist()) for name in columns._arrays},
        [(block.node, block.gpus) for block in columns.blocks],
        sorted(fleet.ledger, key=lambda claim: claim.pod_uid),
        fleet.ledger.version,
        fleet.generation,
        sorted(node.name for node in fleet.nodes),
    ]


def test_a_copy_decides_as_the_original() -> None:
    fleet = two_nodes()

    decisions = [decide(each, builders.ask(10_000), Rules(), now=100.0) for each in (fleet, fleet.copy())]

    assert decisions[0].placement == decisions[1].placement
    assert np.array_equal(decisions[0].row_codes, decisions[1].row_codes)


def test_whatever_happens_to_a_copy_the_original_does_not_notice() -> None:
    fleet = two_nodes()
    before = figures_of(fleet)
    copy = fleet.copy()

    copy.reserve(reservation_of(decide(copy, builders.ask(10_000), Rules(), now=100.0)))
    copy.remove_claims(builders.uid_of("ns/other"))
    copy.observe("GPU-c", builders.observation(1_000))
    copy.set_node(builders.node("n4", builders.gpu("GPU-e")))
    copy.remove_node("n1")

    assert figures_of(fleet) == before


def test_a_copy_of_a_copy_is_the_same() -> None:
    fleet = two_nodes()

    assert figures_of(fleet.copy().copy()) == figures_of(fleet)
