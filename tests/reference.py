"""A slow second opinion: the memory law and placement once more, as plain loops over plain objects.

Written from the text of the law, not from the code under test; shares no function with it.
"""

from fractions import Fraction

from vramline.model.ask import Ask, MibSize, PolicyName, RealtimeMode, ShareSize, WholeSize
from vramline.model.claim import Claim, ClaimState
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import Observation, Unknown
from vramline.model.rules import Rules

__all__ = ["World"]


class World:
    """Nodes, claims and observations as lists and dictionaries."""

    def __init__(self, margin: int) -> None:
        self.margin = margin
        self.nodes: dict[str, Node] = {}
        self.claims: list[Claim] = []
        self.observations: dict[str, Observation] = {}

    def claims_on(self, card: PhysicalGpu) -> list[Claim]:
        return [claim for claim in self.claims if claim.gpu == card.uuid]

    def usable(self, card: PhysicalGpu) -> int:
        return card.total - (0 if isinstance(card.reserved, Unknown) else card.reserved)

    def free_by_books(self, card: PhysicalGpu) -> int:
        return self.usable(card) - self.margin - sum(claim.mib for claim in self.claims_on(card))

    def unmanaged(self, card: PhysicalGpu) -> int | None:
        seen = self.observations.get(card.uuid)
        if seen is None or isinstance(seen.used, Unknown):
            return None
        claims = self.claims_on(card)
        processes = seen.processes
        if isinstance(processes, Unknown):
            known = sum(c.mib for c in claims if c.started_at is not None and c.started_at < seen.at)
            return max(0, seen.used - known)
        owners = {claim.pod_uid for claim in claims}
        gaps = any(isinstance(p.used, Unknown) or isinstance(p.pod_uid, Unknown) for p in processes)
        used = [(p.used, p.pod_uid) for p in processes if not isinstance(p.used, Unknown)]
        attributed: int = sum(mib for mib, owner in used if isinstance(owner, str) and owner in owners)
        if gaps:
            told = {owner for _, owner in used}
            attributed += sum(
                c.mib
                for c in claims
                if c.pod_uid not in told and c.started_at is not None and c.started_at < seen.at
            )
            return max(0, seen.used - attributed)
        residue = max(0, seen.used - sum(mib for mib, _ in used))
        return max(0, seen.used - attributed - min(self.margin, residue))

    def held(self, card: PhysicalGpu) -> int:
        seen = self.observations.get(card.uuid)
        total = 0
        for claim in self.claims_on(card):
            observed = 0
            if seen is not None and not isinstance(seen.processes, Unknown):
                observed = sum(
                    p.used
                    for p in seen.processes
                    if not isinstance(p.used, Unknown) and p.pod_uid == claim.pod_uid
                )
            total += max(claim.mib, observed)
        return total

    def free(self, card: PhysicalGpu, rules: Rules, now: float) -> int:
        unmanaged = self.unmanaged(card)
        if rules.mode is not RealtimeMode.STRICT or unmanaged is None or not self.is_fresh(card, rules, now):
            return self.free_by_books(card)
        return self.usable(card) - self.margin - self.held(card) - unmanaged

    def is_fresh(self, card: PhysicalGpu, rules: Rules, now: float) -> bool:
        seen = self.observations.get(card.uuid)
        return seen is not None and not isinstance(seen.used, Unknown) and now - seen.at <= rules.max_age_s

    def size(self, card: PhysicalGpu, ask: Ask, rules: Rules) -> int:
        promise = self.usable(card) - self.margin
        match ask.size:
            case MibSize(mib):
                return mib
            case ShareSize(numerator, denominator):
                return int(Fraction(numerator, denominator) * promise // 1)
            case WholeSize():
                return promise
            case _:
                return promise if rules.unsized_is_whole else promise // (card.slots or 1)

    def fits(self, card: PhysicalGpu, ask: Ask, rules: Rules, now: float) -> bool:
        size = self.size(card, ask, rules)
        there = self.claims_on(card)
        return (
            card.health is Health.HEALTHY
            and not card.cordoned
            and not card.mig
            and 1 <= size <= self.usable(card) - self.margin
            and size <= self.free(card, rules, now)
            and (card.slots is None or len(there) < card.slots)
            and ask.cores + sum(claim.cores for claim in there) <= card.cores
        )

    def place(self, ask: Ask, rules: Rules, now: float) -> tuple[str, tuple[str, ...]] | None:
        """Policy vramline before it knows what is asked for: known cards, least left over, name, UUID."""
        assert rules.policy is PolicyName.VRAMLINE
        assert rules.mode is RealtimeMode.STRICT
        best: tuple[tuple[int, int, str], tuple[str, ...]] | None = None
        for node in self.nodes.values():
            ranked = sorted(
                (
                    not self.is_fresh(card, rules, now),
                    self.free(card, rules, now) - self.size(card, ask, rules),
                    card.uuid,
                )
                for card in node.gpus
                if self.fits(card, ask, rules, now)
            )
            if node.problem is not None or len(ranked) < ask.gpus:
                continue
            chosen = ranked[: ask.gpus]
            cost = (sum(c[0] for c in chosen), sum(c[1] for c in chosen), node.name)
            if best is None or cost < best[0]:
                best = (cost, tuple(sorted(c[2] for c in chosen)))
        return None if best is None else (best[0][2], best[1])

    def releasing(self, card: PhysicalGpu) -> int:
        return sum(c.mib for c in self.claims_on(card) if c.state is ClaimState.RELEASING)
