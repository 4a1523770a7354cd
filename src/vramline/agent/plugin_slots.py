"""What kubelet counts: slots, one for a pod, however much memory the pod has been promised.

A slot is no card. kubelet chooses slots itself and tells nobody for which pod, so a slot that stood for a
card would sooner or later be in the hands of a pod on another one. How many slots are healthy says how many
cards are; which card a pod is on is said by its sealed annotation alone.
"""

from collections.abc import Iterable, Iterator

import msgspec

from vramline.model.gpu import Health
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["Slots", "prefer_slots"]

_SICK = (Health.UNHEALTHY, Health.PROBATION)


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of one node."""

    total: int = 0
    healthy: int = 0

    def after(self, report: GpuReport, *, per_card: int) -> "Slots":
        """Return the slots by a newer report. A card that vanished leaves its slots behind, unhealthy."""
        cards = report.gpus or ()
        well = sum(card.health not in _SICK for card in cards)
        return Slots(total=max(self.total, len(cards) * per_card), healthy=well * per_card)

    def listed(self) -> Iterator[tuple[str, bool]]:
        """Yield every slot and whether it is healthy.

        Low numbers are healthy as long as any are, and `prefer_slots` hands them out first: a card that falls
        ill takes slots that nobody holds, unless so many are held that there are no others.

        >>> list(Slots(total=2, healthy=1).listed())
        [('slot-00000', True), ('slot-00001', False)]
        """
        return ((f"slot-{number:05d}", number < self.healthy) for number in range(self.total))


def prefer_slots(available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
    """Return `size` slots: those that must be among them, then the lowest numbers.

    >>> prefer_slots(["slot-00002", "slot-00000", "slot-00001"], ["slot-00002"], 2)
    ['slot-00002', 'slot-00000']
    """
    first = sorted(must)
    rest = sorted(set(available) - set(first))
    return [*first, *rest][:size]
