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

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from vramline.model.claim import Claim, ClaimState
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import NOT_REPORTED, Observation, Unknown
from vramline.units import Mib

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Account", "Sums", "balance", "promise_of", "requested_beyond", "sum_up", "take_account"]

N = TypeVar("N", int, "npt.NDArray[np.int64]")
"""MiB of one card, or of each of many."""

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

    >>> from vramline.model.observation import GpuProcess
    >>> card = PhysicalGpu(uuid="GPU-1", node="n", total=Mib(16384))
    >>> reserved = Claim(pod_uid="u", pod="ns/p", gpu="GPU-1", mib=Mib(4096))
    >>> nobodys = GpuProcess(pid=7, used=Mib(6144), pod_uid=None)
    >>> seen = Observation(at=10.0, used=Mib(6144), processes=(nobodys,))
    >>> take_account(card, [reserved], seen, Mib(0)).free
    6144
    """
    claims = tuple(claims)
    sums = Sums(*sum_up(claims, observation))
    requested = requested_beyond(claims, requests) if requests and gpu.unified else 0
    used = NOT_REPORTED if observation is None else observation.used
    unmanaged: Mib | Unknown
    if isinstance(used, Unknown):
        unmanaged, in_use = used, 0
    else:
        rest, in_use = balance(used, sums, margin, requested, most=max, least=min)
        unmanaged = Mib(rest)
    claimed, held = sums.claimed + requested, sums.held + requested
    usable = gpu.usable
    promise = usable - margin
    return Account(
        usable=usable,
        margin=margin,
        claimed=Mib(claimed),
        claimed_releasing=Mib(sums.claimed_releasing),
        held=Mib(held),
        held_releasing=Mib(sums.held_releasing),
        requested=Mib(requested),
        requested_in_use=Mib(in_use),
        unmanaged=unmanaged,
        unmanaged_is_lower_bound=not isinstance(unmanaged, Unknown) and not sums.complete,
        free_by_books=Mib(promise - claimed),
        free_observed=unmanaged if isinstance(unmanaged, Unknown) else Mib(promise - held - unmanaged),
    )


class Sums(NamedTuple, Generic[N]):
    """What the claims on a card, and the processes seen there, add up to; see the head of this module."""

    claimed: N
    claimed_releasing: N
    held: N
    held_releasing: N
    managed: N
    """How much of what was seen in use the claims explain."""
    listed: N
    """What the listed processes hold."""
    complete: N
    """1: every process could be measured and attributed; 0: not all, or they are not listed."""


_NOTHING = Sums(0, 0, 0, 0, 0, 0, 0)
_NOTHING_RUNS = _NOTHING._replace(complete=1)


def sum_up(claims: tuple[Claim, ...], observation: Observation | None) -> tuple[int, ...]:
    """Add up claims and processes of one card, and return the fields of `Sums`."""
    if not claims and (observation is None or observation.processes == ()):
        return _NOTHING if observation is None else _NOTHING_RUNS
    claimed = claimed_releasing = held = held_releasing = managed = listed = complete = 0
    used_by_pod: dict[str, int] = {}
    if observation is not None and not isinstance(observation.processes, Unknown):
        complete = 1
        for process in observation.processes:
            used, pod_uid = process.used, process.pod_uid
            if isinstance(used, Unknown) or isinstance(pod_uid, Unknown):
                complete = 0
                continue
            listed += used
            if claims and pod_uid is not None:
                used_by_pod[pod_uid] = used_by_pod.get(pod_uid, 0) + used
    for claim in claims:
        mib, seen = claim.mib, used_by_pod.get(claim.pod_uid)
        most = mib if seen is None or seen < mib else seen
        if seen is not None:
            managed += seen
        elif not complete and observation is not None and claim.ran_before(observation.at):
            managed += mib
        claimed += mib
        held += most
        if claim.state is ClaimState.RELEASING:
            claimed_releasing += mib
            held_releasing += most
    return claimed, claimed_releasing, held, held_releasing, managed, listed, complete


def balance(
    used: N, sums: Sums[N], margin: int, requested: N, *, most: Callable[..., N], least: Callable[..., N]
) -> tuple[N, N]:
    """Return what is unmanaged of the memory in use, and how much of `requested` is in use.

    For one card or for many at once: `most` and `least` are the greater and the smaller of two.
    """
    residue = most(0, used - sums.listed) * sums.complete  # where the list has gaps, nobody knows
    # Processes may add up to more than the card says (shared pages are listed twice). Those bytes are
    # held already; a negative rest must not be handed out a second time.
    unmanaged = most(0, used - sums.managed - least(residue, margin))
    in_use = least(requested, unmanaged)
    return unmanaged - in_use, in_use


def requested_beyond(claims: tuple[Claim, ...], requests: Mapping[str, int]) -> int:
    """Return what pods requested beyond what they claim: the same bytes are not held twice."""
    claimed: dict[str, int] = {}
    for claim in claims:
        claimed[claim.pod_uid] = claimed.get(claim.pod_uid, 0) + claim.mib
    return sum(max(0, mib - claimed.get(uid, 0)) for uid, mib in requests.items())
