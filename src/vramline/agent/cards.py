"""The cards of this node, remembered from look to look: what each is, and in which condition.

What a card *is* (UUID, model, size) stays true while it does not answer; what it *did* (memory in use,
processes) does not, and is never kept here.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from vramline.agent.health import Condition, HealthRules, Sign, Signs, step
from vramline.agent.link_groups import group_linked
from vramline.agent.signs import EccCount, count_ecc, read_signs
from vramline.model.gpu import Health
from vramline.probes.device import DeviceReading, Failed, HealthEvent

__all__ = ["Cards", "Identity", "SeenCard"]

_NOT_LISTED = Failed("NOT_FOUND", "the card is not listed any more")


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a card is, as far as it ever told."""

    uuid: str
    index: int | None = None
    model: str | None = None
    total: int | None = None
    reserved: int | None = None
    unified: bool | None = None
    numa: int | None = None
    link_group: int | None = None
    """Index of the first card among those that reach each other over NVLink."""
    mig: bool | None = None


class SeenCard(msgspec.Struct, frozen=True, kw_only=True):
    """One card after a look."""

    identity: Identity
    condition: Condition
    reading: DeviceReading | Failed
    """What it answered this time; `Failed`: nothing at all."""


class _Card(msgspec.Struct, kw_only=True):
    """What is kept of one card."""

    identity: Identity
    condition: Condition
    ecc: EccCount = EccCount()
    reading: DeviceReading | Failed = _NOT_LISTED


class Cards:
    """Every card that was ever seen, until another one has its place."""

    def __init__(self, rules: HealthRules | None = None) -> None:
        self._rules = rules or HealthRules()
        self._cards: dict[str, _Card] = {}
        self._recalled: Mapping[str, Health] = {}
        self.nameless: tuple[str, ...] = ()
        """Cards of the last look that did not even tell their UUID, in words."""

    def recall(self, healths: Mapping[str, Health]) -> None:
        """Take over what an agent before this one reported: a new start is no cure."""
        self._recalled = healths

    def look(
        self, readings: Sequence[DeviceReading], events: Collection[HealthEvent], now: float
    ) -> tuple[SeenCard, ...]:
        """Take in one look at all cards, and return every card in order of index."""
        named = {reading.uuid: reading for reading in readings if isinstance(reading.uuid, str)}
        self.nameless = tuple(_describe(each) for each in readings if not isinstance(each.uuid, str))
        self._forget_replaced(named)
        groups = group_linked(named)
        for uuid, reading in named.items():
            card = self._cards.get(uuid) or self._meet(uuid, now)
            concerned = [event for event in events if event.uuid in {None, uuid}]
            signs = read_signs(reading, card.ecc, concerned)
            card.identity = _identify(reading, card.identity, groups.get(uuid))
            card.ecc = count_ecc(card.ecc, reading.health)
            card.reading = reading
            card.condition = step(card.condition, signs, now, self._rules)
            self._cards[uuid] = card
        for uuid in self._cards.keys() - named.keys():
            self._miss(self._cards[uuid], _NOT_LISTED, Sign.FAULT, now)
        return self._seen()

    def miss(self, failure: Failed, now: float) -> tuple[SeenCard, ...]:
        """Take in that nothing could be read at all: every card is in doubt, and nothing of it is known."""
        for card in self._cards.values():
            self._miss(card, failure, Sign.DOUBT, now)
        return self._seen()

    def glance(self, readings: Sequence[DeviceReading]) -> tuple[SeenCard, ...]:
        """Return the cards of a look between samples, which does not count for their health."""
        return tuple(
            SeenCard(identity=card.identity, condition=card.condition, reading=reading)
            for reading in readings
            if isinstance(reading.uuid, str) and (card := self._cards.get(reading.uuid)) is not None
        )

    def _meet(self, uuid: str, now: float) -> _Card:
        if self._recalled.get(uuid) not in {Health.UNHEALTHY, Health.PROBATION}:
            return _Card(identity=Identity(uuid=uuid), condition=Condition(since=now))
        why = "it was not healthy when the agent before this one ended"
        condition = Condition(health=Health.PROBATION, since=now, falls=(now,), why=why)
        return _Card(identity=Identity(uuid=uuid), condition=condition)

    def _miss(self, card: _Card, failure: Failed, sign: Sign, now: float) -> None:
        card.reading = failure
        said = f"{failure.code}: {failure.detail}"
        card.condition = step(card.condition, Signs(sign, said), now, self._rules)

    def _forget_replaced(self, named: dict[str, DeviceReading]) -> None:
        """Let go of cards whose index another card has now."""
        taken = {reading.index for reading in named.values() if isinstance(reading.index, int)}
        self._cards = {
            uuid: card
            for uuid, card in self._cards.items()
            if uuid in named or card.identity.index not in taken
        }

    def _seen(self) -> tuple[SeenCard, ...]:
        seen = [
            SeenCard(identity=card.identity, condition=card.condition, reading=card.reading)
            for card in self._cards.values()
        ]
        return tuple(sorted(seen, key=lambda each: (each.identity.index or 0, each.identity.uuid)))

    def health_of(self, uuid: str) -> Health | None:
        """Return a card's health as of the last look; None: there is no such card."""
        card = self._cards.get(uuid)
        return None if card is None else card.condition.health


def _identify(reading: DeviceReading, before: Identity, link_group: int | None) -> Identity:
    """Return what the card is: the newest answer, or the last one that there was."""
    links = reading.links
    index, model, total, reserved = reading.index, reading.model, reading.total, reading.reserved
    unified, numa, mig = reading.unified, reading.numa, reading.mig_enabled
    return Identity(
        uuid=before.uuid,
        index=index if isinstance(index, int) else before.index,
        model=model if isinstance(model, str) else before.model,
        total=total if isinstance(total, int) else before.total,
        reserved=reserved if isinstance(reserved, int) else before.reserved,
        unified=unified if isinstance(unified, bool) else before.unified,
        numa=numa if isinstance(numa, int) else before.numa,
        link_group=link_group if isinstance(links, tuple) else before.link_group,
        mig=mig if isinstance(mig, bool) else before.mig,
    )


def _describe(reading: DeviceReading) -> str:
    place = f"GPU {reading.index}" if isinstance(reading.index, int) else f"a GPU of {reading.vendor}"
    why = f" ({reading.uuid.code} {reading.uuid.detail})" if isinstance(reading.uuid, Failed) else ""
    return f"{place} does not tell its UUID{why}"
