"""What a page is asked to show: filters, order and page number, from the address of the page."""

import enum
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from vramline.errors import RequestError

__all__ = [
    "CardFlag",
    "CardOrder",
    "CardQuery",
    "PodQuery",
    "PodStatus",
    "read_card_query",
    "read_hours",
    "read_number",
    "read_pod_query",
]

_LONGEST = 253
"""Characters of a name in Kubernetes."""
_MOST_PAGES = 100_000


class CardFlag(enum.StrEnum):
    """What may be said of a card; several may be true at once."""

    ANY = ""
    IDLE = "idle"
    HELD = "held"
    RELEASING = "releasing"
    UNMANAGED = "unmanaged"
    UNKNOWN = "unknown"
    CLOSED = "closed"
    OVER = "over-committed"


class CardOrder(enum.StrEnum):
    """What comes first on the page of all cards."""

    NAME = "name"
    MOST_FREE = "most-free"
    LEAST_FREE = "least-free"
    UNMANAGED = "unmanaged"
    RELEASING = "releasing"


class PodStatus(enum.StrEnum):
    """Which pods are listed."""

    ANY = ""
    PENDING = "Pending"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"


class CardQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which cards, in which order."""

    node: str = ""
    """Part of the node's name."""
    model: str = ""
    """Part of the model's name."""
    namespace: str = ""
    """Whose pods are on the card."""
    state: CardFlag = CardFlag.ANY
    order: CardOrder = CardOrder.NAME
    page: int = 1

    @property
    def is_narrow(self) -> bool:
        """Whether some cards are left out."""
        return bool(self.node or self.model or self.namespace or self.state)

    def address(self, **changes: object) -> str:
        """Return the part of the address after `?`."""
        return _address(msgspec.structs.replace(self, **changes), CardQuery())


class PodQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods."""

    name: str = ""
    """Part of namespace/name."""
    namespace: str = ""
    status: PodStatus = PodStatus.ANY
    page: int = 1

    @property
    def is_narrow(self) -> bool:
        """Whether some pods are left out."""
        return bool(self.name or self.namespace or self.status)

    def address(self, **changes: object) -> str:
        """Return the part of the address after `?`."""
        return _address(msgspec.structs.replace(self, **changes), PodQuery())


def read_card_query(values: Mapping[str, str]) -> CardQuery:
    """Read the address of the page of all cards; raise `RequestError` for what nobody can mean."""
    return CardQuery(
        node=_text(values, "node"),
        model=_text(values, "model"),
        namespace=_text(values, "namespace"),
        state=_one_of(CardFlag, values, "state"),
        order=_one_of(CardOrder, values, "order", CardOrder.NAME),
        page=_page(values),
    )


def read_pod_query(values: Mapping[str, str]) -> PodQuery:
    """Read the address of the page of all pods; raise `RequestError` for what nobody can mean."""
    return PodQuery(
        name=_text(values, "name"),
        namespace=_text(values, "namespace"),
        status=_one_of(PodStatus, values, "status"),
        page=_page(values),
    )


def _address(query: CardQuery | PodQuery, usual: CardQuery | PodQuery) -> str:
    told = msgspec.structs.asdict(query)
    return urlencode({name: value for name, value in told.items() if value != getattr(usual, name)})


def _text(values: Mapping[str, str], name: str) -> str:
    text = values.get(name, "").strip()
    if len(text) > _LONGEST or not text.isprintable():
        raise RequestError(
            subject="query",
            field=name,
            problem="is not part of a name",
            accepted=f"up to {_LONGEST} printable characters",
        )
    return text


_Word = TypeVar("_Word", CardFlag, CardOrder, PodStatus)


def _one_of(kind: type[_Word], values: Mapping[str, str], name: str, usual: str = "") -> _Word:
    text = values.get(name, usual)
    try:
        return kind(text)
    except ValueError:
        raise RequestError(
            subject="query",
            field=name,
            value=text[:_LONGEST],
            problem="is not known",
            accepted=", ".join(word for word in kind if word),
        ) from None


def read_hours(values: Mapping[str, str]) -> int:
    """Read how far back curves go; raise `RequestError` for more than a month, or nothing at all."""
    return _number(values.get("hours", "1"), "hours", 744)


def read_number(text: str) -> int:
    """Read the number of a decision; raise `RequestError` for what is none."""
    return _number(text, "decision", 10**12)


def _page(values: Mapping[str, str]) -> int:
    return _number(values.get("page", "1"), "page", _MOST_PAGES)


def _number(text: str, name: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12 and 1 <= int(text) <= most):
        raise RequestError(
            subject="query",
            field=name,
            value=text[:_LONGEST],
            problem="is not a number that can be",
            accepted=f"1 to {most}",
        )
    return int(text)
