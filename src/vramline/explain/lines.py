"""What an ask met on nodes and cards, kept as figures and put into lines when somebody asks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.explain.figures import Basis, requested_on, reserved_in, rows_of
from vramline.model.columns import NEVER, NO_LIMIT
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.reason import REASON_OF, Reason

__all__ = ["CardLine", "NodeLine", "keep_lines", "node_line"]

Figures = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class CardLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the ask met on one card. MiB; `usable − margin − held − unmanaged == free`, always."""

    uuid: str
    reason: Reason | None
    """The first rule that refused the card; None: it fits."""
    ask_mib: int
    """What the ask means on this card: a share of it is a number here."""
    usable_mib: int
    held_mib: int
    releasing_mib: int
    """Part of `held_mib`."""
    reserved_mib: int = 0
    """Part of `held_mib`: reserved in advance, for pods that are yet to come."""
    requested_mib: int = 0
    """Part of `held_mib`: requested by pods as memory of a machine whose GPU takes from it."""
    unmanaged_mib: int | None
    """None by the books: nobody looked, or the mode does not count it."""
    margin_mib: int
    free_mib: int
    short_mib: int
    """What is lacking; 0 where memory is not the reason."""
    basis: Basis
    observed_age_s: float | None
    """Age of the last look at the card; None: there was none."""
    model: str
    slots_left: int | None
    """How many more pods may share the card; None: no such limit."""
    cores_left: int
    """Percent of the card's compute that is not claimed."""


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """What the ask met on one node."""

    node: str
    fits: bool
    reason: Reason | None
    detail: str = ""
    """What is wrong with the node's inventory, in its own words."""
    gpus: list[CardLine]
    score: int | None
    """Higher is better; only for nodes that fit, comparable only within one decision."""


def node_line(fleet: Fleet, decision: Decision, number: int) -> NodeLine:
    """Say what the ask met on one node."""
    return keep_lines(fleet, decision, np.array([number]))()[0]


def keep_lines(fleet: Fleet, decision: Decision, numbers: Ints) -> Callable[[], list[NodeLine]]:
    """Keep what the ask met on some nodes: what is returned says later what was true now."""
    codes, scores = decision.node_codes.take(numbers).tolist(), decision.scores.take(numbers).tolist()
    heads: list[_Head] = []
    listed: list[int] = []
    for number, code, score in zip(numbers.tolist(), codes, scores, strict=True):
        rows_of_node = rows_of(fleet, number)
        heads.append(_head(fleet, number, rows_of_node, code, score))
        listed += rows_of_node
    rows = np.array(listed, dtype=np.int64)
    columns, observed = fleet.columns, decision.observed.take(rows)
    seen = int(np.count_nonzero(observed))
    names = (*(_BY_LOOK if seen else ()), *(_BY_BOOKS if seen < len(rows) else ()), *_ALWAYS)
    figures = {name: getattr(columns, name).take(rows) for name in names}
    figures |= {name: getattr(decision, name).take(rows) for name in ("row_codes", "sizes")}
    figures["observed"] = observed
    return partial(_write, heads, figures, fleet.margin, decision.at)


_BY_BOOKS = ("claimed", "claimed_releasing", "free_books")
_BY_LOOK = ("held", "held_releasing", "free_observed", "unmanaged")
_ALWAYS = ("promise", "observed_at", "slots_left", "cores_left")


class _Head(msgspec.Struct, frozen=True):
    """A node, and what became of the ask there."""

    node: str
    reason: Reason | None
    detail: str
    gpus: tuple[PhysicalGpu, ...]
    reserved: Sequence[int]
    """MiB reserved in advance, by card."""
    requested: Sequence[int]
    """MiB requested as memory of the machine, by card."""
    score: int


def _head(fleet: Fleet, number: int, rows: range, code: int, score: int) -> _Head:
    name, ledger, columns = fleet.name_of(number), fleet.ledger, fleet.columns
    node = fleet.node(name)
    gpus = columns.blocks[fleet.block_of(number)].gpus if rows else ()
    reserved = requested = (0,) * len(gpus)
    if ledger.has_advance:
        reserved = tuple(reserved_in(ledger.of_card(gpu.uuid)) for gpu in gpus)
    if columns.has_unified:
        requested = tuple(requested_on(fleet, gpu.uuid) for gpu in gpus)
    return _Head(
        node=name,
        reason=REASON_OF.get(code),
        detail="" if node is None or node.problem is None else node.problem.detail,
        gpus=gpus,
        reserved=reserved,
        requested=requested,
        score=score,
    )


def _write(heads: list[_Head], figures: dict[str, Figures], margin: int, at: float) -> list[NodeLine]:
    columns = {name: array.tolist() for name, array in figures.items()}
    rows = iter([dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)])
    return [
        NodeLine(
            node=head.node,
            fits=head.reason is None,
            reason=head.reason,
            detail=head.detail,
            gpus=[
                _card_line(gpu, next(rows) | {"reserved": reserved, "requested": requested}, margin, at)
                for gpu, reserved, requested in zip(head.gpus, head.reserved, head.requested, strict=True)
            ],
            score=head.score if head.reason is None else None,
        )
        for head in heads
    ]


def _card_line(gpu: PhysicalGpu, row: dict[str, Any], margin: int, at: float) -> CardLine:
    """Say what the ask met on one card, on the basis that counted."""
    observed = row["observed"]
    held, releasing, free = (row[name] for name in (_BY_LOOK[:3] if observed else _BY_BOOKS))
    return CardLine(
        uuid=gpu.uuid,
        reason=REASON_OF.get(row["row_codes"]),
        ask_mib=row["sizes"],
        usable_mib=row["promise"] + margin,
        held_mib=held,
        releasing_mib=releasing,
        reserved_mib=row["reserved"],
        requested_mib=row["requested"],
        unmanaged_mib=row["unmanaged"] if observed else None,
        margin_mib=margin,
        free_mib=free,
        short_mib=max(0, row["sizes"] - free),
        basis="observed" if observed else "books",
        observed_age_s=None if row["observed_at"] == NEVER else at - row["observed_at"],
        model=gpu.model,
        slots_left=None if row["slots_left"] == NO_LIMIT else row["slots_left"],
        cores_left=row["cores_left"],
    )
