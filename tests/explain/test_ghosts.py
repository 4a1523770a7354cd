"""Who holds memory that should be free."""

import pytest

from builders import claim, gpu, node, observation, process
from vramline.explain.cards import card_state
from vramline.explain.ghosts import find_ghosts, say_ghost
from vramline.model.claim import Claim, ClaimState
from vramline.model.fleet import Fleet
from vramline.model.observation import GpuProcess, Observation
from vramline.units import Mib


def fleet_with(seen: Observation, *claims: Claim) -> Fleet:
    fleet = Fleet()
    fleet.set_node(node("n1", gpu("GPU-a")))
    fleet.adopt(claims)
    fleet.observe("GPU-a", seen)
    return fleet


def ended(at: float = 50.0) -> Claim:
    return claim(24_000, "ns/p", state=ClaimState.RELEASING, ended_at=at)


def test_a_pod_that_ended_and_is_still_seen_is_a_ghost_with_its_processes() -> None:
    fleet = fleet_with(observation(24_000, process(20_000, "ns/p"), process(4_000, "ns/p")), ended())

    (ghost,) = find_ghosts(fleet, now=100.0, max_age_s=90.0, after_s=30.0)

    assert (ghost.pod, ghost.gpu, ghost.node, ghost.mib) == ("ns/p", "GPU-a", "n1", 24_000)
    assert say_ghost(ghost).startswith("ns/p ended 50 s ago, and processes ")
    assert say_ghost(ghost).endswith(" of it still hold 24,000 MiB")
    assert say_ghost(ghost) in card_state(fleet, "GPU-a", now=100.0, max_age_s=90.0).notes


@pytest.mark.parametrize(
    ("seen", "ended_at", "after_s"),
    [
        pytest.param(observation(0), 50.0, 30.0, id="its processes are gone"),
        pytest.param(observation(24_000, process(24_000, "ns/p")), 50.0, 60.0, id="it ended just now"),
        pytest.param(
            observation(24_000, process(24_000, "ns/p"), at=90.0),
            95.0,
            0.0,
            id="nobody looked since it ended",
        ),
        pytest.param(observation(24_000, process(24_000)), 50.0, 30.0, id="the process is somebody else's"),
    ],
)
def test_is_no_ghost(seen: Observation, ended_at: float, after_s: float) -> None:
    fleet = fleet_with(seen, ended(ended_at))

    assert find_ghosts(fleet, now=100.0, max_age_s=90.0, after_s=after_s) == []


def test_the_largest_strangers_are_named() -> None:
    listed = [GpuProcess(pid=n, used=Mib(n * 100), pod_uid=None) for n in range(1, 6)]
    fleet = fleet_with(observation(1_500, *listed))

    notes = card_state(fleet, "GPU-a", now=100.0, max_age_s=90.0).notes

    assert notes == [
        "process 5 of no pod holds 500 MiB",
        "process 4 of no pod holds 400 MiB",
        "process 3 of no pod holds 300 MiB",
        "2 more such processes hold 300 MiB",
    ]


def test_a_process_of_a_pod_without_a_claim_is_named_with_its_pod() -> None:
    fleet = fleet_with(observation(700, GpuProcess(pid=9, used=Mib(700), pod_uid="uid-9")))

    notes = card_state(fleet, "GPU-a", now=100.0, max_age_s=90.0).notes

    assert notes == ["process 9 of a pod that claimed nothing (uid-9) holds 700 MiB"]
