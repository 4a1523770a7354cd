"""The physical GPU: the only owner of VRAM."""

import enum

import msgspec

from vramline.model.observation import NOT_REPORTED, Unknown
from vramline.units import MAX_MIB, Mib

__all__ = ["Health", "PhysicalGpu"]


class Health(enum.StrEnum):
    """Healthy → Suspect → Unhealthy → Probation → Healthy. Only a healthy card gets new claims."""

    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    UNHEALTHY = "Unhealthy"
    PROBATION = "Probation"


class PhysicalGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device that owns VRAM. Time-slice replicas, MIG instances and fractions are views of it."""

    uuid: str
    node: str
    index: int = 0
    model: str = ""
    total: Mib
    reserved: Mib | Unknown = NOT_REPORTED
    """What the driver keeps for itself; Unknown counts as not subtracted, never as proven absent."""
    slots: int | None = None
    """How many pods may share it (replicas advertised for it); None: no such limit. Adds no memory."""
    cores: int = 100
    """Compute share that may be promised, in percent of the card."""
    unified: bool = False
    """The memory is the host's own (Tegra, GB10)."""
    numa: int | None = None
    link_group: int | None = None
    """Cards of a node with the same number reach each other over NVLink; None: not linked, or not told."""
    health: Health = Health.HEALTHY
    cordoned: bool = False
    """An operator took this card out of service for new claims."""
    mig: bool = False
    """Partitioned by MIG: its memory belongs to its instances, not to shared asks."""

    def __post_init__(self) -> None:
        reserved = 0 if isinstance(self.reserved, Unknown) else self.reserved
        if not 0 <= reserved < self.total <= MAX_MIB or (self.slots is not None and self.slots < 1):
            raise ValueError(
                f"GPU {self.uuid}: total {self.total}, reserved {reserved}, slots {self.slots};"
                f" must be 0 <= reserved < total <= {MAX_MIB} and slots >= 1"
            )

    @property
    def usable(self) -> Mib:
        """What is left of the card once the driver has taken its part."""
        return self.total if isinstance(self.reserved, Unknown) else Mib(self.total - self.reserved)
