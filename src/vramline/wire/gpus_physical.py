"""`vramline.io/gpus-physical`: an operator's word on the cards of a node, where no label tells."""

import re

import msgspec

from vramline.errors import RequestError
from vramline.units import MAX_MIB, Mib
from vramline.wire import keys
from vramline.wire.gfd import MAX_CARDS

__all__ = ["StatedCard", "read_gpus_physical"]

_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)
_GROUP = re.compile(r"(?P<count>[0-9]{1,6})x(?P<mib>[0-9]{1,10})(?::(?P<model>[^,]*))?", re.ASCII)
_FORMS = (
    'a number of cards ("1"), or a comma list of NxMIB with an optional model ("2x81559:NVIDIA H100,1x40960")'
)


class StatedCard(msgspec.Struct, frozen=True):
    """One card; no total: the memory is to be taken from the label."""

    total: Mib | None = None
    model: str = ""


def read_gpus_physical(text: str, subject: str) -> tuple[StatedCard, ...]:
    """Read the annotation; one entry a card.

    >>> read_gpus_physical("1x40960:A100", "Node n1")
    (StatedCard(total=40960, model='A100'),)
    """
    stripped = text.strip()
    if _COUNT.fullmatch(stripped):
        cards = [StatedCard()] * int(stripped)
    else:
        cards = [card for group in stripped.split(",") for card in _read_group(group.strip(), text, subject)]
    if not 1 <= len(cards) <= MAX_CARDS:
        raise _refuse(text, f"means {len(cards)} cards, which is not 1 to {MAX_CARDS}", subject)
    return tuple(cards)


def _read_group(group: str, text: str, subject: str) -> list[StatedCard]:
    found = _GROUP.fullmatch(group)
    if found is None:
        raise _refuse(text, "is not understood", subject)
    count, mib = int(found["count"]), int(found["mib"])
    if not 1 <= mib <= MAX_MIB or not 1 <= count <= MAX_CARDS:
        raise _refuse(text, "holds a number that is not believable", subject)
    return [StatedCard(Mib(mib), (found["model"] or "").strip())] * count


def _refuse(text: str, problem: str, subject: str) -> RequestError:
    return RequestError(
        subject=subject,
        field=f"annotation {keys.GPUS_PHYSICAL}",
        value=text,
        problem=problem,
        accepted=_FORMS,
    )
