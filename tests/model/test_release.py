"""Memory is free on evidence, never on hope."""

import pytest

from builders import claim, observation, process
from vramline.model.claim import Claim, ClaimState
from vramline.model.observation import NOT_REPORTED, Observation
from vramline.model.release import ReleaseProof, prove_release
from vramline.units import Mib

ENDED = claim(24_000, state=ClaimState.RELEASING, ended_at=50.0, used_at_end=Mib(26_000))


def prove(leaving: Claim, seen: Observation | None, *, now: float = 60.0) -> ReleaseProof | None:
    return prove_release(leaving, seen, now=now, grace_s=60.0, max_age_s=90.0)


@pytest.mark.parametrize(
    ("leaving", "seen", "now", "proof"),
    [
        pytest.param(
            claim(24_000, state=ClaimState.RELEASING), observation(0, at=59.0), 60.0, None,
            id="containers that still run release nothing, whatever the card shows",
        ),
        pytest.param(ENDED, observation(0, at=50.0), 60.0, None, id="an older look proves nothing"),
        pytest.param(ENDED, observation(0, at=50.0), 139.0, None, id="nor does time while the agent speaks"),
        pytest.param(
            ENDED, observation(0, at=51.0), 60.0, ReleaseProof.PROCESSES_GONE,
            id="a newer look without its processes is the proof",
        ),
        pytest.param(
            ENDED, observation(24_000, process(24_000, "ns/other"), at=51.0), 60.0, None,
            id="its processes are still there",
        ),
        pytest.param(
            ENDED, observation(24_000, process(24_000, "ns/other"), at=900.0), 900.0, None,
            id="a process that never ends keeps its memory for ever",
        ),
        pytest.param(
            ENDED, observation(2_000, at=51.0, listed=False), 60.0, ReleaseProof.USED_DROPPED,
            id="without a list the used figure has dropped by the claim",
        ),
        pytest.param(
            ENDED, observation(2_001, at=51.0, listed=False), 60.0, None,
            id="one MiB less than the claim is not enough",
        ),
        pytest.param(
            ENDED, observation(9_000, at=115.0, listed=False), 120.0, ReleaseProof.GRACE_PASSED,
            id="a pod that used less than it claimed goes after the grace period",
        ),
        pytest.param(
            ENDED, observation(2_000, process(2_000, NOT_REPORTED), at=51.0), 60.0, ReleaseProof.USED_DROPPED,
            id="a list with gaps counts as no list",
        ),
        pytest.param(ENDED, None, 109.0, None, id="without any observation the grace period must pass"),
        pytest.param(ENDED, None, 110.0, ReleaseProof.GRACE_PASSED, id="and then it decides"),
        pytest.param(
            ENDED, observation(9_000, process(9_000, "ns/other"), at=10.0), 200.0, ReleaseProof.GRACE_PASSED,
            id="an agent silent for longer than an observation counts is no agent",
        ),
        pytest.param(
            claim(24_000, state=ClaimState.RUNNING, ended_at=50.0), observation(0, at=51.0), 60.0, None,
            id="only a releasing claim can be released",
        ),
    ],
)  # fmt: skip
def test_proof_of_release(
    leaving: Claim, seen: Observation | None, now: float, proof: ReleaseProof | None
) -> None:
    assert prove(leaving, seen, now=now) == proof
