"""One look at the cards, for people."""

import time

from vramline.agent.attribution import Attributor
from vramline.agent.figures import Figures
from vramline.agent.reporting import NodeFacts
from vramline.agent.sampler import Sampler
from vramline.errors import TransientError
from vramline.probes.device import DeviceProbe
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["look_once"]


async def look_once(facts: NodeFacts, probes: tuple[DeviceProbe, ...]) -> GpuReport:
    """Return the report of one look; raises `TransientError` where no card could be looked at, and why."""
    sampler = Sampler(facts, probes, Attributor(), Figures(), clock=time.monotonic)
    try:
        report = (await sampler.sample()).report
    finally:
        sampler.close()
    if report.gpus is None:
        raise TransientError("; ".join(report.notes) or "no GPU could be looked at")
    return report
