"""What the engine returned: chosen node and GPUs or none, every refusal, scores, the inputs' versions."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.model.ask import Ask, PolicyName, RealtimeMode
from vramline.model.pod import GpuShare
from vramline.model.reason import WarningCode
from vramline.units import Mib

__all__ = ["Decision", "DecisionWarning", "Placement"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod goes: different physical GPUs of one node, in the order of their UUIDs."""

    node: str
    gpus: tuple[GpuShare, ...]


class DecisionWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be known although the pod was placed: a code and its numbers."""

    code: WarningCode
    gpu: str | None = None
    ask: Mib | None = None
    free: Mib | None = None
    age_s: float | None = None
    """Age of the observation; None: there is none."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of `decide`, valid for exactly one generation of the fleet.

    Arrays are by row of `GpuColumns` or by node number. They say for each card which rule refused it
    first, what the ask means there and what was free there, on the basis that the mode chose; `explain`
    turns them into words while the generation still stands.
    """

    ask: Ask
    mode: RealtimeMode
    policy: PolicyName
    at: float
    generation: int
    ledger_version: int
    placement: Placement | None
    nominated: str | None
    """A node where the ask would fit once releasing memory is free; a hint, never a promise."""
    row_codes: npt.NDArray[np.int8]
    node_codes: npt.NDArray[np.int8]
    scores: npt.NDArray[np.int64]
    """By node number, higher is better; the lowest there is where the node does not fit, if any fits."""
    sizes: npt.NDArray[np.int64]
    free: npt.NDArray[np.int64]
    observed: npt.NDArray[np.bool_]
    """Whether `free` rests on a fresh observation rather than on the books."""
    fitting_count: int
    """How many nodes fit."""
    best_nodes: npt.NDArray[np.int64]
    """The numbers of those of them with the highest score, by rank: the first was chosen."""
    fitting: npt.NDArray[np.int64]
    """By block of cards: how many fit and may be taken together."""
    lacking: npt.NDArray[np.int64]
    """By block of cards: MiB that are lacking in all; very many where memory alone would not help."""
    warnings: tuple[DecisionWarning, ...] = ()
    loans: tuple[object, ...] = ()
    """Arrays are lent: they stay as they are as long as this is held."""
    judged_by: Any = None
    """What `decide` judged by; it goes on to the next generation of the fleet with it."""
