"""Every series that we have, and those that an expression reads."""

import re

from vramline.agent.figures import AgentMetric
from vramline.telemetry.metrics import Gauge
from vramline.telemetry.tallies import Duration, Happening

__all__ = ["METRICS", "metrics_in"]

METRICS = {
    *(each.metric for each in (*Gauge, *Happening)),
    *(f"{each.metric}_{part}" for each in Duration for part in ("bucket", "sum", "count")),
    *(each.value[0] for each in AgentMetric),
}


def metrics_in(expression: str) -> set[str]:
    """Return the names of the series that an expression reads."""
    return set(re.findall(r"\b(?:vramline|hami)_\w+", expression))
