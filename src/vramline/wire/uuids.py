"""Names of devices and of the cards behind them."""

import re

__all__ = ["card_of", "name_card"]

_REPLICA = re.compile(r"(?P<card>.+?)::[0-9]+", re.ASCII)


def card_of(device: str) -> str:
    """Return the UUID of the physical GPU behind a device id; a time-slice replica is a view of its card.

    >>> card_of("GPU-1f3a::12"), card_of("GPU-1f3a")
    ('GPU-1f3a', 'GPU-1f3a')
    """
    found = _REPLICA.fullmatch(device) if "::" in device else None
    return found["card"] if found else device


def name_card(node: str, index: int) -> str:
    """Name a card whose UUID nobody told."""
    return f"{node}/gpu-{index}"
