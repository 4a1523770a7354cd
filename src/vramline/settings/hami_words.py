"""Words of the settings that concern HAMi."""

import enum

__all__ = ["HamiMetrics", "HamiNodeLock"]


class HamiMetrics(enum.StrEnum):
    """Whether figures are told under HAMi's names too."""

    ON = "on"
    OFF = "off"


class HamiNodeLock(enum.StrEnum):
    """Whether HAMi's lock is taken on nodes that its device plugin runs."""

    ON = "on"
    OFF = "off"
