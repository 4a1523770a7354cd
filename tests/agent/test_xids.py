"""What an Xid says about the card: the manual's table is the program's."""

import re
from pathlib import Path

import pytest

from vramline.agent.xids import XIDS, Blame, xid

MANUAL = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
ROWS = {
    Blame.APPLICATION: "the program's: no change",
    Blame.DOUBT: "doubt",
    Blame.CARD: "the card's: fault",
}


@pytest.mark.parametrize("blame", Blame)
def test_the_manual_lists_them_all(blame: Blame) -> None:
    (row,) = [line for line in MANUAL.splitlines() if re.match(rf"\| [0-9, ]+[^|]*\| {ROWS[blame]} \|", line)]

    listed = {int(number) for number in re.findall(r"[0-9]+", row.split("|")[1])}
    assert listed == {number for number, each in XIDS.items() if each.blame is blame}


def test_what_is_not_listed_is_doubtful() -> None:
    assert xid(12345).blame is Blame.DOUBT
