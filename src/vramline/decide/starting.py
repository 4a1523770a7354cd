"""The last look before a container starts: whether the card still holds what was promised on it.

The claim stands in the books already, so the question is not whether an ask fits beside the claims but
whether all claims can be kept: `usable − held − unmanaged ≥ 0`. The margin is not asked for again: it is
never promised, and is there for what changes between a promise and its use.
"""

from collections.abc import Iterable, Mapping

import msgspec

from vramline.model.ask import RealtimeMode
from vramline.model.claim import Claim
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import Account, take_account
from vramline.model.observation import Observation, Unknown
from vramline.units import Mib

__all__ = ["Judgement", "SeenCard", "Shortfall", "judge_start"]


class SeenCard(msgspec.Struct, frozen=True):
    """A card, and what a look young enough to count saw there; None: there was none."""

    gpu: PhysicalGpu
    observation: Observation | None


class Shortfall(msgspec.Struct, frozen=True):
    """A card that cannot keep all that is promised on it."""

    claim: Claim
    """The one of the pod that is about to start."""
    account: Account
    unmanaged: Mib

    @property
    def short(self) -> Mib:
        """How much must become free before all promises can be kept; more than 0."""
        return Mib(self.account.held + self.unmanaged - self.account.usable)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the cards of one pod say about its start."""

    short: tuple[Shortfall, ...] = ()
    unseen: tuple[Claim, ...] = ()
    """Claims on cards that nobody could look at."""

    def only(self, mode: RealtimeMode) -> "Judgement":
        """Return what concerns claims that were promised in this mode."""
        return Judgement(
            short=tuple(each for each in self.short if each.claim.mode is mode),
            unseen=tuple(each for each in self.unseen if each.mode is mode),
        )


def judge_start(
    pod: str,
    claims: Iterable[Claim],
    cards: Mapping[str, SeenCard],
    *,
    margin: Mib,
    has_run: bool,
) -> Judgement:
    """Judge the start of a container of `pod` (namespace/name) by the claims of its node and by the cards.

    `margin` is how much driver residue is nobody's. `has_run`: memory on the cards may be the pod's own, from
    an earlier container. Where processes cannot be told apart, everybody else is taken to have run: what is
    called unmanaged is then too little rather than too much, and nothing is refused for want of knowledge.
    """
    claims = tuple(_as_run(each, has_run=has_run or each.pod != pod) for each in claims)
    short: list[Shortfall] = []
    unseen: list[Claim] = []
    for claim in claims:
        if claim.pod != pod:
            continue
        card = cards.get(claim.gpu)
        if card is None:
            unseen.append(claim)
            continue
        there = [each for each in claims if each.gpu == claim.gpu]
        account = take_account(card.gpu, there, card.observation, margin)
        if isinstance(account.unmanaged, Unknown):
            unseen.append(claim)
        elif account.held + account.unmanaged > account.usable:
            short.append(Shortfall(claim, account, account.unmanaged))
    return Judgement(short=tuple(short), unseen=tuple(unseen))


def _as_run(claim: Claim, *, has_run: bool) -> Claim:
    return msgspec.structs.replace(claim, started_at=float("-inf") if has_run else None)
