"""What an Xid, the number by which NVIDIA's driver reports a fault, says about the card.

A program that reads outside its memory makes an Xid too; a card must not be taken from everybody for that.
Numbers that are not listed are doubtful: something happened, and nobody here knows what.
"""

import enum

import msgspec

__all__ = ["XIDS", "Blame", "Xid", "xid"]


class Blame(enum.Enum):
    """What follows for the card."""

    APPLICATION = "application"
    """The program's own fault, or a consequence of ending it: nothing."""
    DOUBT = "doubt"
    """The card recovered by itself, or it is not known: Suspect, and Unhealthy if it goes on."""
    CARD = "card"
    """The card cannot be trusted: Unhealthy."""


class Xid(msgspec.Struct, frozen=True):
    """One kind of fault."""

    blame: Blame
    why: str


XIDS: dict[int, Xid] = {
    8: Xid(Blame.APPLICATION, "a program's work took longer than its display allows"),
    13: Xid(Blame.APPLICATION, "a program did something that the engine refuses"),
    31: Xid(Blame.APPLICATION, "a program used an address that is not mapped"),
    43: Xid(Blame.APPLICATION, "a program's work was stopped after its own fault"),
    45: Xid(Blame.APPLICATION, "work was cleaned up because its program ended or was killed"),
    68: Xid(Blame.APPLICATION, "the video decoder was given something wrong"),
    69: Xid(Blame.APPLICATION, "a program used a graphics class wrongly"),
    109: Xid(Blame.APPLICATION, "a program's context did not yield in time"),
    63: Xid(Blame.DOUBT, "a bad memory row was noted and will be replaced at the next reset"),
    74: Xid(Blame.DOUBT, "a transfer over NVLink failed"),
    92: Xid(Blame.DOUBT, "many memory errors had to be corrected"),
    94: Xid(Blame.DOUBT, "a memory error hit one program and was contained"),
    154: Xid(Blame.DOUBT, "the driver changed what it recommends to recover the card"),
    48: Xid(Blame.CARD, "a memory error could not be corrected"),
    61: Xid(Blame.CARD, "the card's controller stopped at a breakpoint"),
    62: Xid(Blame.CARD, "the card's controller halted"),
    64: Xid(Blame.CARD, "a bad memory row could not be replaced"),
    79: Xid(Blame.CARD, "the card has fallen off the bus"),
    95: Xid(Blame.CARD, "a memory error may have hit any program"),
    119: Xid(Blame.CARD, "the card's system processor does not answer"),
    120: Xid(Blame.CARD, "the card's system processor failed"),
    140: Xid(Blame.CARD, "a memory error was not recovered"),
    143: Xid(Blame.CARD, "the card could not be initialised"),
}

_UNLISTED = Xid(Blame.DOUBT, "a fault that is not listed here")


def xid(number: int) -> Xid:
    """Return what is known of an Xid."""
    return XIDS.get(number, _UNLISTED)
