"""NVIDIA's numbers for faults that the driver reports."""

__all__ = ["describe_xid"]

_TEXTS = {
    13: "graphics engine exception, mostly of the program that ran",
    31: "memory page fault, mostly of the program that ran",
    32: "invalid or corrupted push buffer",
    38: "driver firmware error",
    43: "a program was stopped for its own fault",
    45: "a program's channels were removed, mostly because it ended",
    48: "uncorrectable memory error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "a memory page or row was retired",
    64: "a memory page or row could not be retired",
    68: "video processor exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "the card has fallen off the bus",
    92: "many corrected memory errors",
    94: "contained memory error: the program that used it was ended",
    95: "uncontained memory error: the card must be reset",
    109: "a context switch timed out",
    119: "the card's system processor does not answer",
    120: "the card's system processor failed",
    140: "unrecovered memory error",
    154: "the card asks for a recovery",
}


def describe_xid(number: int) -> str:
    """Say in words what a number means.

    >>> describe_xid(79), describe_xid(4242)
    ('Xid 79: the card has fallen off the bus', 'Xid 4242')
    """
    return f"Xid {number}: {_TEXTS[number]}" if number in _TEXTS else f"Xid {number}"
