"""Every code with which a question to a card can fail: why it happens, and what to do about it.

NVML's own return codes keep their names without `NVML_ERROR_`; docs/probes.md has the same table.
"""

from dataclasses import dataclass

from vramline.probes.device import Failed, ProbeError

__all__ = ["FAULTS", "UNSUPPORTED_CODES", "Fault", "advise", "failed", "nvml_code", "probe_error"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a code is seen, and what to do."""

    cause: str
    advice: str


FAULTS: dict[str, Fault] = {
    "LIBRARY_NOT_FOUND": Fault(
        "the vendor's library is not on this machine, or something that it needs is not",
        "Install the driver on the node, or mount its libraries at the same path",
    ),
    "DRIVER_NOT_LOADED": Fault(
        "the library is there, but the kernel's driver does not answer: it is not loaded, or its device"
        " files are not in this container",
        "Load the driver (`modprobe nvidia`, then `nvidia-smi` on the host) and mount /dev/nvidiactl and"
        " /dev/nvidia*; on a Jetson mount /dev",
    ),
    "NO_PERMISSION": Fault(
        "this process may not open the device files",
        "Run the agent privileged, or allow /dev/nvidiactl and /dev/nvidia* to its container; the scheduler"
        " needs no such right",
    ),
    "NOT_FOUND": Fault(
        "there is no card with that UUID on this machine any more",
        "Compare `nvidia-smi -L` with the node's GpuReport: the card was replaced, renumbered or hidden from"
        " this container (NVIDIA_VISIBLE_DEVICES must be all)",
    ),
    "GPU_IS_LOST": Fault(
        "the card has fallen off the bus or has stopped answering",
        "Look for Xid 79 in the kernel's log; drain the node and reset the card or restart the machine",
    ),
    "GPU_NOT_FOUND": Fault(
        "the driver does not see a card that it saw before",
        "Look for Xid in the kernel's log; drain the node and restart the machine",
    ),
    "RESET_REQUIRED": Fault(
        "the card must be reset before it can be used again",
        "Drain the node and run `nvidia-smi --gpu-reset`",
    ),
    "LIB_RM_VERSION_MISMATCH": Fault(
        "the driver was updated under a running process: library and kernel module are of different versions",
        "Restart the agent; if it stays, restart the machine so that the new module is loaded",
    ),
    "UNINITIALIZED": Fault(
        "the library was shut down, or never opened",
        "Nothing: it is opened again; restart the agent if it stays",
    ),
    "TIMEOUT": Fault(
        "the driver did not answer in time; a call into it may hang for good",
        "Look for Xid 119 or 120 and for hung tasks in the kernel's log; if it stays, drain the node and"
        " restart the machine",
    ),
    "NONSENSE": Fault(
        "the answer cannot be true, such as more memory in use than there is",
        "Nothing, if it was once; else update the driver",
    ),
    "UNREADABLE": Fault(
        "a file of the kernel or the output of a program could not be read",
        "Look at the detail: a mount may be missing",
    ),
    "IRQ_ISSUE": Fault("the card's interrupts do not arrive", "Restart the machine"),
    "CORRUPTED_INFOROM": Fault("the card's own description is damaged", "Have the card replaced"),
    "OPERATING_SYSTEM": Fault("the kernel refused the request", "Look at the kernel's log"),
    "MEMORY": Fault("the library got no memory", "Raise the agent's memory limit"),
    "INVALID_ARGUMENT": Fault("the card left while it was read", "Nothing: cards are listed again"),
    "UNKNOWN": Fault("the driver gave no reason", "Look at the kernel's log for Xid"),
    "FUNCTION_NOT_FOUND": Fault(
        "the library lacks what every NVML has: it is another library of that name",
        "Name the right one with the setting nvmlLibrary",
    ),
    "WRONG_COUNT": Fault(
        "a reservation pod sees no card at all, or more than the one that kubelet gave to it",
        "Look which runtime the pod runs with, and which NVIDIA_VISIBLE_DEVICES it has",
    ),
    "NOT_IMPLEMENTED": Fault(
        "Vramline cannot read the cards of this maker",
        "Nothing is wrong: pods on this node are placed by the books. A probe can be added: docs/probes.md",
    ),
}

UNSUPPORTED_CODES = frozenset(
    {"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED"}
)
"""What NVML says where card or driver do not know the question: no failure."""

_NVML_CODES = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    6: "NOT_FOUND",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    20: "MEMORY",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    28: "GPU_NOT_FOUND",
}


def nvml_code(value: int) -> str:
    """Return the name of an NVML return code; what has no entry of its own is UNKNOWN.

    >>> nvml_code(15), nvml_code(999)
    ('GPU_IS_LOST', 'UNKNOWN')
    """
    return _NVML_CODES.get(value, "UNKNOWN")


def advise(code: str) -> str:
    """Say what to do about a code; a code of somebody else's probe has no entry here.

    >>> advise("CORRUPTED_INFOROM")
    'Have the card replaced'
    """
    return FAULTS.get(code, FAULTS["UNKNOWN"]).advice


def failed(code: str, what: str, text: str = "") -> Failed:
    """Return a failed answer that says what was tried, in NVML's words where it has some.

    >>> failed("NO_PERMISSION", "failed to get device handle", "Insufficient Permissions").detail
    'failed to get device handle: NVML_ERROR_NO_PERMISSION (Insufficient Permissions)'
    """
    return Failed(code, f"{what}: NVML_ERROR_{code}" + (f" ({text})" if text else ""))


def probe_error(message: str, code: str, *, tried: tuple[str, ...] = (), advice: str = "") -> ProbeError:
    """Return the error for a whole vendor, with the cause and the advice that belong to its code."""
    fault = FAULTS.get(code, FAULTS["UNKNOWN"])
    return ProbeError(message, code=code, cause=fault.cause, tried=tried, advice=f"{advice or fault.advice}.")
