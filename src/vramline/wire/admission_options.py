"""What an operator decides about admission."""

import enum

import msgspec

__all__ = ["AdmissionOptions", "Backend", "SchedulerNamePolicy"]


class SchedulerNamePolicy(enum.StrEnum):
    """For which pods that ask for GPUs admission sets `spec.schedulerName`."""

    DEFAULT = "default"
    """Those that name no scheduler, or the default one."""
    ALWAYS = "always"
    NEVER = "never"


class Backend(enum.StrEnum):
    """Who holds a card from kubelet's point of view."""

    RESERVATION = "reservation"
    """A reservation pod. A pod that shares a card loses its limits, else kubelet hands out a second card."""
    PLUGIN = "plugin"
    """Vramline's own device plugin: a pod holds one of its slots and no device of another plugin."""


class AdmissionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator decides about admission."""

    scheduler_name: str = "vramline"
    scheduler_name_policy: SchedulerNamePolicy = SchedulerNamePolicy.DEFAULT
    backend: Backend = Backend.RESERVATION
