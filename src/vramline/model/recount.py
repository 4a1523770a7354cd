"""Many cards counted anew together, after much has changed."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramline.model.columns import GpuColumns
from vramline.model.counts import OnCards, count_cards
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import requested_beyond
from vramline.model.ledger import Ledger
from vramline.model.observation import Observation
from vramline.units import Mib

__all__ = ["Books", "count_again"]


class Books(NamedTuple):
    """What the figures of cards follow from, besides the cards."""

    ledger: Ledger
    observations: Mapping[str, Observation]
    requests: Mapping[str, Mapping[str, Mib]]
    """By node, what pods have requested of its memory."""
    margin: Mib


def count_again(columns: GpuColumns, uuids: Collection[str], books: Books) -> None:
    """Write what is counted of these cards into their rows; names of no card are left out."""
    rows, gpus = _find(columns, uuids)
    if not gpus:
        return
    names = [gpu.uuid for gpu in gpus]
    claims = books.ledger.of_cards(names)
    requested = [0] * len(gpus)
    if columns.has_unified:
        for place, gpu in enumerate(gpus):
            if gpu.unified:
                requested[place] = requested_beyond(claims[place], books.requests.get(gpu.node, {}))
    seen = list(map(books.observations.get, names))
    columns.write_counts(rows, count_cards(OnCards(gpus, claims, seen, requested), books.margin))


def _find(columns: GpuColumns, uuids: Collection[str]) -> tuple[npt.NDArray[np.int64], list[PhysicalGpu]]:
    """Return rows, ascending, and the cards in them; all there are, where these are most of them.

    To look for each of most cards would take longer than to count the few others too.
    """
    if 2 * len(uuids) > len(columns.row_of):
        blocks = [block for block in columns.blocks if block.gpus]
        rows = [row for block in blocks for row in range(block.start, block.start + block.width)]
        gpus = [gpu for block in blocks for gpu in block.gpus]
    else:
        rows = sorted(columns.row_of[uuid] for uuid in uuids if uuid in columns.row_of)
        gpus = [columns.card(row) for row in rows]
    return np.array(rows, dtype=np.int64), gpus
