"""What one look at a card, and what the driver reported since the last one, say about the card's health."""

from collections.abc import Iterable

import msgspec

from vramline.agent.health import Sign, Signs, worst
from vramline.agent.xids import Blame, xid
from vramline.probes.device import DeviceReading, Failed, HealthEvent, HealthFacts

__all__ = ["EccCount", "count_ecc", "read_signs"]

FATAL_CODES = frozenset({"GPU_IS_LOST", "GPU_NOT_FOUND", "RESET_REQUIRED"})
"""Codes of a failed answer after which the card itself does not work."""

_BLAMES = {Blame.APPLICATION: Sign.CALM, Blame.DOUBT: Sign.DOUBT, Blame.CARD: Sign.FAULT}


class EccCount(msgspec.Struct, frozen=True):
    """Memory errors that could not be corrected, as last read; None: never read."""

    uncorrected: int | None = None


def count_ecc(before: EccCount, facts: HealthFacts) -> EccCount:
    """Return the newest count; one that could not be read leaves the old one."""
    now = facts.ecc_uncorrected
    return EccCount(now) if isinstance(now, int) else before


def read_signs(reading: DeviceReading, before: EccCount, events: Iterable[HealthEvent]) -> Signs:
    """Return the worst that was seen. A fault that is a program's own is no sign of the card's."""
    return worst([*_of_answers(reading), *_of_facts(reading.health, before), *map(_of_event, events)])


def _of_answers(reading: DeviceReading) -> Iterable[Signs]:
    """A card that cannot tell its memory is in doubt; other fields may fail."""
    answers = (reading.total, reading.used, reading.uuid, reading.utilization_percent, reading.processes)
    for answer in answers:
        if isinstance(answer, Failed) and answer.code in FATAL_CODES:
            yield Signs(Sign.FAULT, _said(answer))
    for answer in (reading.total, reading.used, reading.uuid):
        if isinstance(answer, Failed):
            yield Signs(Sign.DOUBT, _said(answer))


def _of_facts(facts: HealthFacts, before: EccCount) -> Iterable[Signs]:
    if facts.rows_failed is True:
        yield Signs(Sign.FAULT, "a bad memory row could not be replaced; replace the card")
    if facts.rows_pending is True:
        yield Signs(Sign.DOUBT, "bad memory rows wait to be replaced; reset the card")
    now, then = facts.ecc_uncorrected, before.uncorrected
    if isinstance(now, int) and then is not None and now > then:
        yield Signs(Sign.FAULT, f"{now - then} memory errors could not be corrected")


def _of_event(event: HealthEvent) -> Signs:
    """An event that names no card is about any of them: doubt, at most."""
    known = xid(event.xid)
    sign = _BLAMES[known.blame]
    return Signs(min(sign, Sign.DOUBT) if event.uuid is None else sign, f"Xid {event.xid}: {known.why}")


def _said(answer: Failed) -> str:
    return f"{answer.code}: {answer.detail}" if answer.detail else answer.code
