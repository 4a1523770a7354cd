"""What the ledger holds for one pod on one physical GPU, and how it comes and goes.

    Reserved ──bind──▶ Bound ──start──▶ Running ──delete──▶ Releasing ──proof──▶ Gone
        │                │                                      ▲
        │                └────────────────delete────────────────┘
        └──abandon──▶ Abandoned          (Running ──proof──▶ Gone: the object vanished, card is clean)

Reserved, Bound, Running and Releasing all hold memory. Only Gone and Abandoned do not, and the
ledger forgets a claim in the moment it reaches one of them.
"""

import enum

import msgspec

from vramline.errors import InvariantError
from vramline.model.ask import RealtimeMode
from vramline.units import Mib

__all__ = ["Claim", "ClaimEvent", "ClaimState", "next_state"]


class ClaimState(enum.StrEnum):
    """See the drawing in the module's docstring."""

    RESERVED = "Reserved"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    GONE = "Gone"
    ABANDONED = "Abandoned"


class ClaimEvent(enum.StrEnum):
    """What moves a claim from one state to the next."""

    BIND = "bind"
    START = "start"
    DELETE = "delete"
    PROOF = "proof"
    ABANDON = "abandon"


_MOVES = {
    (ClaimState.RESERVED, ClaimEvent.BIND): ClaimState.BOUND,
    (ClaimState.RESERVED, ClaimEvent.ABANDON): ClaimState.ABANDONED,
    (ClaimState.BOUND, ClaimEvent.START): ClaimState.RUNNING,
    (ClaimState.BOUND, ClaimEvent.DELETE): ClaimState.RELEASING,
    (ClaimState.RUNNING, ClaimEvent.DELETE): ClaimState.RELEASING,
    (ClaimState.RUNNING, ClaimEvent.PROOF): ClaimState.GONE,
    (ClaimState.RELEASING, ClaimEvent.PROOF): ClaimState.GONE,
}


def next_state(state: ClaimState, event: ClaimEvent) -> ClaimState:
    """Return the state after `event`; an impossible move is a bug and raises `InvariantError`."""
    try:
        return _MOVES[state, event]
    except KeyError:
        raise InvariantError(f"a claim that is {state} cannot {event}") from None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A promise of `mib` on one physical GPU to one pod."""

    pod_uid: str
    pod: str
    """namespace/name, for people; identity is the UID."""
    gpu: str
    """UUID of the physical GPU."""
    mib: Mib
    cores: int = 0
    state: ClaimState = ClaimState.RESERVED
    epoch: int = 0
    """Which leader wrote it."""
    mode: RealtimeMode = RealtimeMode.STRICT
    """In which mode it was promised: what a last look before the start may do about it."""
    started_at: float | None = None
    """When its containers began to run; None: they have not. -inf: before anyone looked."""
    ended_at: float | None = None
    """When the last of its containers ended or its object vanished; None: not yet."""
    used_at_end: Mib | None = None
    """What the card showed when the release began; the figure that must drop where no process is listed."""
    until: float | None = None
    """Of an advance claim, which is promised to whoever shows its token: when it ends by itself. Its `pod` is
    the owner and its `pod_uid` the token's seal; None: the claim of a pod."""

    def ran_before(self, at: float) -> bool:
        """Whether a sample taken at `at` can already contain this pod's memory."""
        return self.started_at is not None and self.started_at < at
