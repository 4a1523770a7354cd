"""How often kubelet was offered each card: replicas of a time-sliced card are devices of one and the same."""

from collections import Counter
from collections.abc import Iterable

from vramline.wire.keys import GPU_COUNT, GPU_COUNT_SHARED
from vramline.wire.uuids import card_of

__all__ = ["count_replicas"]


def count_replicas(devices: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the number of devices for each card, from pairs of resource and device id.

    Only whole cards count: instances of a partitioned one are resources of their own.

    >>> count_replicas([(GPU_COUNT, "GPU-a::0"), (GPU_COUNT, "GPU-a::1"), ("cpu", "x")])
    {'GPU-a': 2}
    """
    ids = {device for resource, device in devices if resource in {GPU_COUNT, GPU_COUNT_SHARED}}
    return dict(Counter(card_of(device) for device in sorted(ids)))
