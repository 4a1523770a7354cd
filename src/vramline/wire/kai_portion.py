"""`GPU_PORTION`: what KAI tells a container of its share of a card, for programs that were written for it."""

from vramline.model.ask import ShareSize, Size

__all__ = ["portion_of"]


def portion_of(size: Size, mib: int, total: int) -> str:
    """Return the share as KAI writes it: the fraction that was asked for, or of the card, rounded up.

    >>> portion_of(ShareSize(1, 8), 10_182, 81_559)
    '0.125'
    >>> from vramline.model.ask import MibSize
    >>> portion_of(MibSize(8_000), 8_000, 81_559)
    '0.10'
    """
    if isinstance(size, ShareSize):
        return f"{size.numerator / size.denominator:.6f}".rstrip("0").rstrip(".")
    hundredths = -(-100 * mib // total)
    return f"{hundredths // 100}.{hundredths % 100:02d}"
