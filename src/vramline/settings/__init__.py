"""What can be set, from where, and what is in force: file, environment, flags, pod annotations; later wins.

Pure: the caller parses the file and hands in the environment. `load` reports every mistake at once and
keeps for every value where it came from.
"""

from vramline.settings.hami_words import HamiMetrics, HamiNodeLock
from vramline.settings.load import load
from vramline.settings.modes import admission_from, effective_mode, pool_from, rules_from
from vramline.settings.observation_feeds import ObservationFeed, read_feeds
from vramline.settings.schema import (
    SETTINGS,
    Adoption,
    LogFormat,
    LogLevel,
    NominateAhead,
    Origin,
    Preemption,
    Setting,
    Settings,
    Source,
    StaleObservation,
    UnsizedAsk,
)
from vramline.settings.values import Address

__all__ = [
    "SETTINGS",
    "Address",
    "Adoption",
    "HamiMetrics",
    "HamiNodeLock",
    "LogFormat",
    "LogLevel",
    "NominateAhead",
    "ObservationFeed",
    "Origin",
    "Preemption",
    "Setting",
    "Settings",
    "Source",
    "StaleObservation",
    "UnsizedAsk",
    "admission_from",
    "effective_mode",
    "load",
    "pool_from",
    "read_feeds",
    "rules_from",
]
