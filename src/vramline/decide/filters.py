"""Rules that refuse cards and nodes. The first rule that refuses a card is its reason."""

import numpy as np
import numpy.typing as npt

from vramline.decide.realtime import Look
from vramline.model.ask import Ask, Constraints, RealtimeMode
from vramline.model.columns import ALL_CORES, GpuColumns
from vramline.model.reason import CODE_OF, FITS, Reason

__all__ = [
    "fitting_cards",
    "is_wanted",
    "node_code_of_cards",
    "refuse_for_good",
    "refuse_for_now",
    "shortfall",
]

Codes = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]

_NEARNESS: tuple[Reason, ...] = (
    Reason.INSUFFICIENT_VRAM,
    Reason.GPU_TOO_SMALL,
    Reason.NO_SLOT_LEFT,
    Reason.INSUFFICIENT_CORES,
    Reason.STALE_OBSERVATION,
    Reason.CORDONED_GPU,
    Reason.UNHEALTHY_GPU,
    Reason.MIG_PARTITIONED,
    Reason.WRONG_MODEL,
    Reason.WRONG_UUID,
)
"""Reasons of cards, nearest to fitting first: which one speaks for a node whose cards disagree."""

_NO_VRAM, _NO_CORES, _NO_SLOT, _STALE = (
    np.int8(CODE_OF[reason])
    for reason in (
        Reason.INSUFFICIENT_VRAM,
        Reason.INSUFFICIENT_CORES,
        Reason.NO_SLOT_LEFT,
        Reason.STALE_OBSERVATION,
    )
)

_FAR = 2**40
"""More than any shortfall in MiB, so that the two can share one integer."""

_NEARNESS_OF_CODE = np.full(len(Reason) + 1, len(_NEARNESS), dtype=np.int64)
for _place, _reason in enumerate(_NEARNESS):
    _NEARNESS_OF_CODE[CODE_OF[_reason]] = _place
_NEARNESS_OF_CODE[CODE_OF[Reason.GPU_TOO_SMALL]] = 0  # both lack MiB: the fewest MiB decide


def refuse_for_good(columns: GpuColumns, ask: Ask, sizes: npt.NDArray[np.int64]) -> Codes:
    """Return for each row FITS or why the card will not do, empty or not; final rules come first."""
    codes = np.zeros(len(columns), dtype=np.int8)
    wishes = ask.constraints
    if wishes.use_uuids or wishes.avoid_uuids:
        _refuse(codes, ~_wanted_uuids(columns, wishes), Reason.WRONG_UUID)
    if wishes.use_models or wishes.avoid_models:
        _refuse(codes, ~_wanted_models(columns, wishes), Reason.WRONG_MODEL)
    codes = np.where(
        codes == FITS, columns.static_code, codes
    )  # a sick card that nobody wants is not the reason
    _refuse(codes, (sizes > columns.promise) | (sizes < 1), Reason.GPU_TOO_SMALL)
    return codes


def refuse_for_now(
    look: Look, ask: Ask, sizes: npt.NDArray[np.int64], codes: Codes | None
) -> tuple[Codes, bool]:
    """Return for each row FITS or the code of the first rule that refused it.

    `codes` are those for good; None: no card is refused for good. And whether no other rule than the one
    about memory that is free can have refused a card.
    """
    columns = look.columns
    refused = (sizes > look.free) * _NO_VRAM
    by_memory = codes is None
    if columns.has_limits or ask.cores > ALL_CORES:
        by_memory = False
        np.copyto(refused, _NO_CORES, where=columns.cores_left < ask.cores)
        np.copyto(refused, _NO_SLOT, where=columns.slots_left < 1)
    if look.rules.stale_refuses:
        by_memory = False
        np.copyto(refused, _STALE, where=~look.fresh & look.in_mode(RealtimeMode.STRICT))
    if codes is not None:
        np.copyto(refused, codes, where=codes != FITS)  # the first rule that refuses a card comes last here
    return refused, by_memory


def shortfall(sizes: npt.NDArray[np.int64], free: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many MiB each card lacks; 0 where it lacks none."""
    lacking: npt.NDArray[np.int64] = np.maximum(sizes - free, 0)
    return lacking


def node_code_of_cards(columns: GpuColumns, row_codes: Codes, short: npt.NDArray[np.int64]) -> Codes:
    """Return for each block the code of its nearest miss: fewest MiB short, then nearest reason."""
    key = _NEARNESS_OF_CODE[row_codes] * _FAR + short
    packed = key * 64 + row_codes
    return (columns.lowest_per_block(packed) % 64).astype(np.int8)


def fitting_cards(columns: GpuColumns, ask: Ask, row_codes: Codes) -> npt.NDArray[np.int64]:
    """Count the cards of each block that may be taken together."""
    fits = row_codes == FITS
    if not ask.constraints.numa_bind or ask.gpus == 1:
        return columns.per_block(fits)
    counts = np.zeros(len(columns.blocks), dtype=np.int64)
    for domain in np.unique(columns.numa[fits & (columns.numa >= 0)]):
        counts = np.maximum(counts, columns.per_block(fits & (columns.numa == domain)))
    return counts


def _refuse(codes: Codes, refused: Mask, reason: Reason) -> None:
    codes[refused & (codes == FITS)] = CODE_OF[reason]


def _wanted_uuids(columns: GpuColumns, constraints: Constraints) -> Mask:
    wanted = np.full(len(columns), not constraints.use_uuids, dtype=np.bool_)
    for uuid in constraints.use_uuids:
        if uuid in columns.row_of:
            wanted[columns.row_of[uuid]] = True
    for uuid in constraints.avoid_uuids:
        if uuid in columns.row_of:
            wanted[columns.row_of[uuid]] = False
    return wanted


def _wanted_models(columns: GpuColumns, constraints: Constraints) -> Mask:
    wanted = np.array([is_wanted(model.lower(), constraints) for model in columns.models], dtype=np.bool_)
    return wanted[columns.model] if len(wanted) else np.zeros(0, dtype=np.bool_)


def is_wanted(model: str, constraints: Constraints) -> bool:
    """Whether a card of this model, in lower case, will do."""
    if any(word in model for word in constraints.avoid_models):
        return False
    return not constraints.use_models or any(word in model for word in constraints.use_models)
