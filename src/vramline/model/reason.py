"""Why a rule refused a GPU, a node or a pod: stable words. Text is made only at the edge (`explain`)."""

import enum

__all__ = ["CODE_OF", "FITS", "REASON_OF", "Reason", "WarningCode"]


class Reason(enum.StrEnum):
    """Reason codes. Documented one by one in docs/reasons.md; never renamed."""

    # One card
    INSUFFICIENT_VRAM = "InsufficientVram"
    GPU_TOO_SMALL = "GpuTooSmall"
    NO_SLOT_LEFT = "NoSlotLeft"
    INSUFFICIENT_CORES = "InsufficientCores"
    STALE_OBSERVATION = "StaleObservation"
    UNHEALTHY_GPU = "UnhealthyGpu"
    CORDONED_GPU = "CordonedGpu"
    MIG_PARTITIONED = "MigPartitioned"
    WRONG_MODEL = "WrongModel"
    WRONG_UUID = "WrongUuid"
    # One node
    NO_SUCH_GPU = "NoSuchGpu"
    NOT_ENOUGH_GPUS = "NotEnoughGpus"
    INVENTORY_CONFLICT = "InventoryConflict"
    UNKNOWN_INVENTORY = "UnknownInventory"
    FROZEN_NODE = "FrozenNode"
    NODE_NOT_READY = "NodeNotReady"
    NODE_CORDONED = "NodeCordoned"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    INSUFFICIENT_CPU = "InsufficientCpu"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    TOO_MANY_PODS = "TooManyPods"
    KEPT_FOR_ANOTHER = "KeptForAnother"
    NO_DEVICE_LEFT = "NoDeviceLeft"
    KUBELET_CHOOSES = "KubeletChooses"
    NOT_A_CANDIDATE = "NotACandidate"
    # One pod
    INVALID_REQUEST = "InvalidRequest"


class WarningCode(enum.StrEnum):
    """Things a decision wants to be known although it went ahead."""

    STRICT_WOULD_REFUSE = "StrictWouldRefuse"
    PLACED_BY_BOOKS = "PlacedByBooks"
    NO_IDLE_GPU = "NoIdleGpu"


FITS = 0
"""The code of a row or node that no rule refused."""

CODE_OF: dict[Reason, int] = {reason: code for code, reason in enumerate(Reason, start=1)}
"""Reasons as small integers, for arrays."""

REASON_OF: dict[int, Reason] = {code: reason for reason, code in CODE_OF.items()}
