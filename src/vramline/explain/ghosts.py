"""Memory that should not be there: of pods that ended, and of processes that belong to no pod."""

from collections.abc import Iterator

import msgspec

from vramline.explain.text import seconds
from vramline.model.claim import Claim, ClaimState
from vramline.model.fleet import Fleet
from vramline.model.observation import GpuProcess, Observation, Unknown
from vramline.units import Mib, format_mib

__all__ = ["Ghost", "find_ghosts", "ghosts_on", "say_ghost", "say_strangers"]

_MOST_STRANGERS = 3


class Ghost(msgspec.Struct, frozen=True, kw_only=True):
    """A pod whose containers have ended and whose processes are still on a card."""

    node: str
    gpu: str
    pod: str
    ended_s: float
    """How long ago it ended."""
    pids: tuple[int, ...]
    mib: Mib | None
    """What they hold; None: the card does not tell."""


def find_ghosts(fleet: Fleet, *, now: float, max_age_s: float, after_s: float) -> list[Ghost]:
    """Return every pod that ended longer than `after_s` ago and was seen on a card since."""
    return [
        ghost
        for claim in fleet.ledger.releasing()
        for ghost in _ghosts_of(fleet, claim, now=now, max_age_s=max_age_s)
        if ghost.ended_s >= after_s
    ]


def ghosts_on(fleet: Fleet, uuid: str, *, now: float, max_age_s: float) -> list[Ghost]:
    """Return the pods that have ended and were seen on one card since."""
    claims = fleet.ledger.of_card(uuid)
    return [ghost for claim in claims for ghost in _ghosts_of(fleet, claim, now=now, max_age_s=max_age_s)]


def say_ghost(ghost: Ghost) -> str:
    """Name the pod, and the processes by which it can be found on its node."""
    held = "memory" if ghost.mib is None else format_mib(ghost.mib)
    who = f"process {ghost.pids[0]}" if len(ghost.pids) == 1 else f"processes {_listed(ghost.pids)}"
    verb = "holds" if len(ghost.pids) == 1 else "hold"
    return f"{ghost.pod} ended {seconds(ghost.ended_s)} ago, and {who} of it still {verb} {held}"


def say_strangers(claims: tuple[Claim, ...], seen: Observation) -> Iterator[str]:
    """Name the largest processes that belong to no pod, or to one that claimed nothing here."""
    if isinstance(seen.processes, Unknown):
        return
    holders = {claim.pod_uid for claim in claims}
    strangers = [
        (process.used, process)
        for process in seen.processes
        if not isinstance(process.used, Unknown)
        and not isinstance(process.pod_uid, Unknown)
        and process.pod_uid not in holders
    ]
    strangers.sort(key=lambda each: (-each[0], each[1].pid))
    for used, process in strangers[:_MOST_STRANGERS]:
        yield f"process {process.pid} of {_owner(process)} holds {format_mib(used)}"
    rest = strangers[_MOST_STRANGERS:]
    if rest:
        yield f"{len(rest)} more such processes hold {format_mib(Mib(sum(used for used, _ in rest)))}"


def _owner(process: GpuProcess) -> str:
    return "no pod" if process.pod_uid is None else f"a pod that claimed nothing ({process.pod_uid})"


def _ghosts_of(fleet: Fleet, claim: Claim, *, now: float, max_age_s: float) -> Iterator[Ghost]:
    seen, gpu = fleet.observation(claim.gpu), fleet.gpu(claim.gpu)
    if claim.state is not ClaimState.RELEASING or claim.ended_at is None or gpu is None or seen is None:
        return
    counts = seen.at > claim.ended_at and now - seen.at <= max_age_s and now < seen.void_at
    if not counts or isinstance(seen.processes, Unknown):
        return
    own = [process for process in seen.processes if process.pod_uid == claim.pod_uid]
    if own:
        known = [process.used for process in own if not isinstance(process.used, Unknown)]
        yield Ghost(
            node=gpu.node,
            gpu=gpu.uuid,
            pod=claim.pod,
            ended_s=now - claim.ended_at,
            pids=tuple(process.pid for process in own),
            mib=Mib(sum(known)) if len(known) == len(own) else None,
        )


def _listed(pids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, pids[:8]))
    return f"{shown} and {len(pids) - 8} more" if len(pids) > 8 else shown
