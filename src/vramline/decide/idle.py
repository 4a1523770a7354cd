"""Which cards are idle, and which node has the most of them.

A card is idle when it was seen lately with low utilisation and little memory in use. A card nobody saw
is idle only where no pod holds anything on its node: "no metrics" alone never means idle.
"""

import numpy as np
import numpy.typing as npt

from vramline.decide.realtime import Look
from vramline.model.reason import FITS

__all__ = ["average_utilization", "idle_cards"]


def idle_cards(look: Look) -> npt.NDArray[np.bool_]:
    """Return for each row whether the card is idle."""
    columns, rules = look.columns, look.rules
    if not len(columns):
        return np.zeros(0, dtype=np.bool_)
    # Comparisons with NaN are false, so a card that did not tell its utilisation is not idle.
    calm = (columns.utilization < rules.idle_utilization_percent) & (
        columns.used_percent < rules.idle_memory_percent
    )
    sharers = np.add.reduceat(columns.sharers, columns.starts)
    untouched = (sharers == 0)[columns.block]
    never_seen = np.isneginf(columns.observed_at)
    idle: npt.NDArray[np.bool_] = ((look.fresh & calm) | (never_seen & untouched)) & (
        columns.static_code == FITS
    )
    return idle


def average_utilization(look: Look) -> npt.NDArray[np.float64]:
    """Return each block's mean utilisation over the cards that told theirs lately; 0 where none did."""
    columns = look.columns
    if not len(columns):
        return np.zeros(0)
    told = look.fresh & ~np.isnan(columns.utilization)
    total = np.add.reduceat(np.where(told, columns.utilization, 0.0), columns.starts)
    count = np.add.reduceat(told.astype(np.int64), columns.starts)
    return np.divide(total, count, out=np.zeros_like(total), where=count > 0)
