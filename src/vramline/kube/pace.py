"""How long to wait before the next attempt."""

import random

import msgspec

__all__ = ["Pace", "delay_s"]


class Pace(msgspec.Struct, frozen=True):
    """Waits double from the first to the longest."""

    first_s: float = 0.5
    most_s: float = 30.0


def delay_s(pace: Pace, failures: int, rng: random.Random) -> float:
    """Return seconds to wait after this many failures in a row (1 or more).

    Between half and all of the doubled wait, so that clients which failed together do not return together.
    """
    doublings = min(failures - 1, 32)
    whole = min(pace.most_s, pace.first_s * 2.0**doublings)
    return whole * (0.5 + rng.random() / 2)
