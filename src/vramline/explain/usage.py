"""To whom the memory of a card counts: every MiB exactly once, and what nobody knows to nobody."""

import enum
from collections.abc import Iterable

import msgspec

from vramline.model.claim import Claim
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import Account
from vramline.model.observation import Observation, Unknown

__all__ = ["OF_NAMESPACES", "Share", "UsagePart", "split_card"]


class UsagePart(enum.StrEnum):
    """What a MiB is. All but `claimed` and `total` add up to `total`."""

    TOTAL = "total"
    CLAIMED = "claimed"
    """What was promised to pods; counted beside the others, not among them."""
    USED = "used"
    """Seen in use by pods that claimed memory on the card."""
    WASTED = "wasted"
    """Claimed, and seen not to be in use by anybody."""
    UNSEEN = "unseen"
    """Claimed, and nobody can tell whether it is in use."""
    UNMANAGED = "unmanaged"
    RESERVED = "reserved"
    """What the driver keeps for itself."""
    IDLE = "idle"
    """Neither claimed nor in use, the margin included."""
    UNKNOWN = "unknown"
    """Not claimed, and nobody looked."""


OF_NAMESPACES = (UsagePart.USED, UsagePart.WASTED, UsagePart.UNSEEN)
"""The parts that count to somebody."""


class Share(msgspec.Struct, frozen=True):
    """So many MiB of a card; an empty namespace is nobody's."""

    namespace: str
    part: UsagePart
    mib: int


def split_card(
    gpu: PhysicalGpu, claims: Iterable[Claim], account: Account, seen: Observation | None
) -> list[Share]:
    """Share out the memory of a card. `seen` is None where no look counts.

    What is in use comes first, then what is claimed: where others took memory that was claimed, it is
    not wasted, because it is not there.
    """
    claims = tuple(claims)
    rest = _Rest(gpu.total)
    shares = [
        Share("", UsagePart.TOTAL, gpu.total),
        rest.take("", UsagePart.RESERVED, gpu.total - gpu.usable),
    ]
    shares += [Share(_namespace(claim), UsagePart.CLAIMED, claim.mib) for claim in claims]
    if seen is None or isinstance(account.unmanaged, Unknown):
        shares += [rest.take(_namespace(claim), UsagePart.UNSEEN, claim.mib) for claim in claims]
        return [*shares, rest.take("", UsagePart.UNKNOWN, rest.mib)]
    uses = {claim.pod_uid: _use_of(claim, seen) for claim in claims}
    shares += [rest.take(_namespace(claim), UsagePart.USED, uses[claim.pod_uid] or 0) for claim in claims]
    shares.append(rest.take("", UsagePart.UNMANAGED, account.unmanaged + account.requested_in_use))
    for claim in claims:
        use = uses[claim.pod_uid]
        part = UsagePart.UNSEEN if use is None else UsagePart.WASTED
        shares.append(rest.take(_namespace(claim), part, claim.mib - (use or 0)))
    return [*shares, rest.take("", UsagePart.IDLE, rest.mib)]


class _Rest:
    """What of a card has not been shared out yet."""

    def __init__(self, mib: int) -> None:
        self.mib = mib

    def take(self, namespace: str, part: UsagePart, wanted: int) -> Share:
        given = max(0, min(wanted, self.mib))
        self.mib -= given
        return Share(namespace, part, given)


def _namespace(claim: Claim) -> str:
    return claim.pod.partition("/")[0]


def _use_of(claim: Claim, seen: Observation) -> int | None:
    """Return what a pod was seen to use; None: the card does not tell whose all its processes are."""
    if isinstance(seen.processes, Unknown):
        return None
    own = [process.used for process in seen.processes if process.pod_uid == claim.pod_uid]
    known = sum(used for used in own if not isinstance(used, Unknown))
    nameless = any(isinstance(process.pod_uid, Unknown) for process in seen.processes)
    return None if nameless or any(isinstance(used, Unknown) for used in own) else known
