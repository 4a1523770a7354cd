"""The numbers of one card on the basis that counted: `usable − margin − held − unmanaged == free`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vramline.model.claim import Claim
from vramline.model.columns import NEVER
from vramline.model.fleet import Fleet

__all__ = ["Basis", "Figures", "age_at", "figures_at", "is_fresh", "requested_on", "reserved_in", "rows_of"]

Basis = Literal["books", "observed"]
"""What `free` rests on: the claims alone, or a fresh look at the card as well."""


@dataclass(frozen=True, slots=True)
class Figures:
    """MiB of one card. By the books nobody knows what is unmanaged: it is None and counts as nothing."""

    usable: int
    margin: int
    held: int
    releasing: int
    unmanaged: int | None
    free: int
    basis: Basis


def figures_at(fleet: Fleet, row: int, *, observed: bool) -> Figures:
    """Return the figures of a row, by a look at the card or by the books."""
    columns, margin = fleet.columns, fleet.margin
    usable = int(columns.promise[row]) + margin
    if observed:
        return Figures(
            usable=usable,
            margin=margin,
            held=int(columns.held[row]),
            releasing=int(columns.held_releasing[row]),
            unmanaged=int(columns.unmanaged[row]),
            free=int(columns.free_observed[row]),
            basis="observed",
        )
    return Figures(
        usable=usable,
        margin=margin,
        held=int(columns.claimed[row]),
        releasing=int(columns.claimed_releasing[row]),
        unmanaged=None,
        free=int(columns.free_books[row]),
        basis="books",
    )


def age_at(fleet: Fleet, row: int, *, now: float) -> float | None:
    """Return the age of the last look that told how much is in use; None: there was none."""
    seen_at = float(fleet.columns.observed_at[row])
    return None if seen_at == NEVER else now - seen_at


def is_fresh(fleet: Fleet, row: int, *, now: float, max_age_s: float) -> bool:
    """Whether the last look at a card is young enough to count, judged exactly as `decide` does."""
    return fleet.columns.is_fresh(row, now=now, max_age_s=max_age_s)


def reserved_in(claims: Iterable[Claim]) -> int:
    """Return how much of these claims is reserved in advance, in MiB."""
    return sum(claim.mib for claim in claims if claim.until is not None)


def requested_on(fleet: Fleet, uuid: str) -> int:
    """Return what pods requested as memory of a machine whose GPU takes from it, beyond claims, in MiB."""
    gpu = fleet.gpu(uuid)
    return fleet.account(uuid).requested if gpu is not None and gpu.unified else 0


def rows_of(fleet: Fleet, number: int) -> range:
    """Return the rows of a node's cards, in the order of their UUIDs; none where it has no card."""
    node = fleet.node(fleet.name_of(number))
    if node is None or not node.gpus:
        return range(0)
    block = fleet.columns.blocks[fleet.block_of(number)]
    return range(block.start, block.start + block.width)
