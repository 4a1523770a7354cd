"""When is the memory of a pod that ended really free? Only on evidence."""

import enum

from vramline.model.claim import Claim, ClaimState
from vramline.model.observation import Observation, Unknown

__all__ = ["ReleaseProof", "prove_release"]


class ReleaseProof(enum.StrEnum):
    """Why a claim was let go."""

    PROCESSES_GONE = "ProcessesGone"
    USED_DROPPED = "UsedDropped"
    GRACE_PASSED = "GracePassed"


def prove_release(
    claim: Claim, observation: Observation | None, *, now: float, grace_s: float, max_age_s: float
) -> ReleaseProof | None:
    """Return the proof that a releasing claim's memory is free, or None while there is none.

    Its containers must have ended, and a newer look at the card must show it: its processes are gone,
    or, where processes are not listed, the used figure has dropped by the claim. Where that cannot be
    seen (no look that counts is younger than `max_age_s`, or an unlisted pod used less than it claimed) the
    grace period decides; memory that is still there afterwards shows up as unmanaged, because no claim
    explains it any more.
    """
    if claim.state is not ClaimState.RELEASING or claim.ended_at is None or claim.ended_at > now:
        return None
    grace_passed = now - claim.ended_at >= grace_s
    if observation is None or not _can_tell(observation, now=now, max_age_s=max_age_s):
        return ReleaseProof.GRACE_PASSED if grace_passed else None
    if observation.at <= claim.ended_at:
        return None  # where an agent speaks, no time replaces its next word
    seen = _processes_of(claim, observation)
    if seen is not None:
        return None if seen else ReleaseProof.PROCESSES_GONE
    if _used_has_dropped(claim, observation):
        return ReleaseProof.USED_DROPPED
    return ReleaseProof.GRACE_PASSED if grace_passed else None


def _can_tell(observation: Observation, *, now: float, max_age_s: float) -> bool:
    """Whether a look is young enough to count and says anything about memory."""
    silent = isinstance(observation.used, Unknown) and isinstance(observation.processes, Unknown)
    return now - observation.at <= max_age_s and now < observation.void_at and not silent


def _processes_of(claim: Claim, observation: Observation) -> bool | None:
    """Whether the pod still has processes on the card; None: the list cannot tell."""
    if isinstance(observation.processes, Unknown):
        return None
    owners = [process.pod_uid for process in observation.processes]
    if claim.pod_uid in owners:
        return True
    return None if any(isinstance(owner, Unknown) for owner in owners) else False


def _used_has_dropped(claim: Claim, observation: Observation) -> bool:
    if claim.used_at_end is None or isinstance(observation.used, Unknown):
        return False
    return observation.used <= claim.used_at_end - claim.mib
