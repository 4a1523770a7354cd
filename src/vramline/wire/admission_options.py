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
    """A reservation pod. A pod loses its limits, else kubelet hands out a card of its own choice."""
    PLUGIN = "plugin"
    """Vramline's own device plugin: a pod holds one of its slots and no device of another plugin."""


class AdmissionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator decides about admission."""

    scheduler_name: str = "vramline"
    scheduler_name_policy: SchedulerNamePolicy = SchedulerNamePolicy.DEFAULT
    backend: Backend = Backend.RESERVATION
    makes_reservations: bool = False
    """Whether there are reservation pods, that is an image for them: they hold whole cards as well then."""
