"""The memory law, in its one implementation. Integers in MiB; nothing is clamped.

    usable    = total − reserved by the driver
    held      = Σ over claims not proved gone of  max(claim, observed use of that pod)
    unmanaged = observed used − Σ observed use attributed to claims               (attribution known)
              = max(0, observed used − Σ claims whose pod ran before the sample)   (not known: a lower bound)
    free      = usable − margin − held − unmanaged

A GPU without memory of its own takes from the machine's (unified). There pods hold memory by requesting it
too, and a pod holds the greater of its request and its claim:

    requested = Σ over pods on the machine of  max(0, memory request − claim)     held, in the books as well
    unmanaged = max(0, unmanaged as above − requested)                            what requests explain

What no listed process holds (driver residue on an idle card) is charged to the margin first, up to its
size; only the rest is unmanaged. A negative `free` is no mistake: the deficit is the explanation.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from vramline.model.claim import Claim, ClaimState
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation, Unknown
from vramline.units import Mib

__all__ = ["Account", "promise_of", "take_account"]

_NO_REQUESTS: Mapping[str, int] = MappingProxyType({})


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory of one physical GPU is, by the books and by the card."""

    usable: Mib
    margin: Mib
    claimed: Mib
    """Sum of the claims: what the books hold."""
    claimed_releasing: Mib
    held: Mib
    """What is held once observed use above a claim is counted too; at least `claimed`."""
    held_releasing: Mib
    requested: Mib
    """Part of `claimed` and of `held`: what pods requested as memory of the machine, beyond their claims."""
    requested_in_use: Mib
    """How much of `requested` was seen in use."""
    unmanaged: Mib | Unknown
    unmanaged_is_lower_bound: bool
    free_by_books: Mib
    free_observed: Mib | Unknown

    @property
    def free(self) -> Mib:
        """What may be promised: by the card where it spoke, else by the books."""
        return self.free_by_books if isinstance(self.free_observed, Unknown) else self.free_observed


def promise_of(gpu: PhysicalGpu, margin: Mib) -> Mib:
    """Return what the empty card can promise: a whole GPU is exactly this much."""
    return Mib(gpu.usable - margin)


def take_account(
    gpu: PhysicalGpu,
    claims: Iterable[Claim],
    observation: Observation | None,
    margin: Mib,
    requests: Mapping[str, int] = _NO_REQUESTS,
) -> Account:
    """Apply the memory law to one card.

    `claims` are those of this card not proved gone; `requests` are the memory requests of the pods on its
    machine, by UID, and count where the card's memory is the machine's. The age of `observation` is not
    judged here: a stale one falls back to `free_by_books`, which is the caller's choice to make and to say.

    >>> card = PhysicalGpu(uuid="GPU-1", node="n", total=Mib(16384))
    >>> reserved = Claim(pod_uid="u", pod="ns/p", gpu="GPU-1", mib=Mib(4096))
    >>> nobodys = GpuProcess(pid=7, used=Mib(6144), pod_uid=None)
    >>> seen = Observation(at=10.0, used=Mib(6144), processes=(nobodys,))
    >>> take_account(card, [reserved], seen, Mib(0)).free
    6144
    """
    claims = tuple(claims)
    used_by_pod, complete = _use_by_pod(observation)
    claimed = claimed_releasing = held = held_releasing = 0
    for claim in claims:
        mib = claim.mib
        most = max(mib, used_by_pod.get(claim.pod_uid, 0)) if used_by_pod else mib
        claimed += mib
        held += most
        if claim.state is ClaimState.RELEASING:
            claimed_releasing += mib
            held_releasing += most
    unmanaged = _unmanaged(claims, observation, used_by_pod, margin, complete=complete)
    requested = _requested(claims, requests) if requests and gpu.unified else 0
    in_use = 0
    if requested:
        claimed, held = claimed + requested, held + requested
        if not isinstance(unmanaged, Unknown):
            in_use = min(requested, unmanaged)
            unmanaged = Mib(unmanaged - in_use)
    usable = gpu.usable
    promise = usable - margin
    return Account(
        usable=usable,
        margin=margin,
        claimed=Mib(claimed),
        claimed_releasing=Mib(claimed_releasing),
        held=Mib(held),
        held_releasing=Mib(held_releasing),
        requested=Mib(requested),
        requested_in_use=Mib(in_use),
        unmanaged=unmanaged,
        unmanaged_is_lower_bound=not isinstance(unmanaged, Unknown) and not complete,
        free_by_books=Mib(promise - claimed),
        free_observed=unmanaged if isinstance(unmanaged, Unknown) else Mib(promise - held - unmanaged),
    )


def _requested(claims: tuple[Claim, ...], requests: Mapping[str, int]) -> int:
    """Return what pods requested beyond what they claim: the same bytes are not held twice."""
    claimed: dict[str, int] = {}
    for claim in claims:
        claimed[claim.pod_uid] = claimed.get(claim.pod_uid, 0) + claim.mib
    return sum(max(0, mib - claimed.get(uid, 0)) for uid, mib in requests.items())


def _use_by_pod(observation: Observation | None) -> tuple[dict[str, int], bool]:
    """Return observed MiB by pod UID, and whether every process could be measured and attributed."""
    if observation is None or isinstance(observation.processes, Unknown):
        return {}, False
    complete = True
    used_by_pod: dict[str, int] = {}
    for process in observation.processes:
        if isinstance(process.used, Unknown) or isinstance(process.pod_uid, Unknown):
            complete = False
        elif process.pod_uid is not None:
            used_by_pod[process.pod_uid] = used_by_pod.get(process.pod_uid, 0) + process.used
    return used_by_pod, complete


def _unmanaged(
    claims: tuple[Claim, ...],
    observation: Observation | None,
    used_by_pod: dict[str, int],
    margin: Mib,
    *,
    complete: bool,
) -> Mib | Unknown:
    if observation is None:
        return NOT_REPORTED
    if isinstance(observation.used, Unknown):
        return observation.used
    managed = 0
    for claim in claims:
        if claim.pod_uid in used_by_pod:
            managed += used_by_pod[claim.pod_uid]
        elif not complete and claim.ran_before(observation.at):
            managed += claim.mib
    residue = _residue(observation.used, observation.processes, complete=complete)
    # Processes may add up to more than the card says (shared pages are listed twice). Those bytes are
    # held already; a negative rest must not be handed out a second time.
    return Mib(max(0, observation.used - managed - min(residue, margin)))


def _residue(used: int, processes: tuple[GpuProcess, ...] | Unknown, *, complete: bool) -> int:
    """Return what no listed process holds; 0 where the list is missing or has gaps."""
    if isinstance(processes, Unknown) or not complete:
        return 0
    listed = sum(process.used for process in processes if not isinstance(process.used, Unknown))
    return max(0, used - listed)
