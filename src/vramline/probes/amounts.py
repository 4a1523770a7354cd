"""From bytes that a library reports to MiB that can be believed, or to a failed answer.

Wrapped integers, sizes of 17 TB and used > total have all been seen: none of them may reach a decision.
"""

from vramline.probes.device import Answer, Failed
from vramline.units import Mib

__all__ = ["believe_percent", "believe_pid", "believe_temperature", "believe_total", "believe_used"]

_LARGEST_CARD = Mib(4 * 2**20)
"""4 TiB: several times what any card or unified machine has."""
_COLDEST, _HOTTEST = -50, 200
_LAST_PID = 2**22
"""The kernel's own limit."""


def believe_total(amount_bytes: int) -> Answer[Mib]:
    """Return a card's memory, rounded down.

    >>> believe_total(85520809984)
    81559
    >>> believe_total(0)
    Failed(code='NONSENSE', detail='a total of 0 bytes')
    """
    if 2**20 <= amount_bytes <= _LARGEST_CARD * 2**20:
        return Mib(amount_bytes >> 20)
    return Failed("NONSENSE", f"a total of {amount_bytes} bytes")


def believe_used(amount_bytes: int, total: Answer[Mib], *, what: str = "used") -> Answer[Mib]:
    """Return what is taken of a card's memory, rounded up; never more than there is.

    >>> believe_used(1, Mib(100)), believe_used(2**30, Mib(100)).detail
    (1, 'used 1073741824 bytes of 100 MiB')
    """
    if isinstance(total, int):
        if 0 <= amount_bytes < (total + 1) * 2**20:
            return Mib(min(-(-amount_bytes >> 20), total))
        return Failed("NONSENSE", f"{what} {amount_bytes} bytes of {total} MiB")
    return total


def believe_percent(value: int) -> Answer[int]:
    """Return a utilisation.

    >>> believe_percent(45), believe_percent(4294967295).code
    (45, 'NONSENSE')
    """
    return value if 0 <= value <= 100 else Failed("NONSENSE", f"a utilisation of {value} %")


def believe_temperature(value: int) -> Answer[int]:
    """Return a temperature in °C.

    >>> believe_temperature(51), believe_temperature(65535).code
    (51, 'NONSENSE')
    """
    return value if _COLDEST <= value <= _HOTTEST else Failed("NONSENSE", f"a temperature of {value} °C")


def believe_pid(value: int) -> Answer[int]:
    """Return the number of a process.

    >>> believe_pid(4711), believe_pid(0).code
    (4711, 'NONSENSE')
    """
    return value if 1 <= value <= _LAST_PID else Failed("NONSENSE", f"a process number of {value}")
