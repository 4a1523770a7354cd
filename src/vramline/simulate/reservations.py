"""The reservation pod that a node would get: what of the machine it is given, for stories to check."""

from typing import Any, cast

import msgspec

from vramline.model.node import Node
from vramline.settings.platforms import profile_for
from vramline.wire.reservation_pod import ReservationOptions, ReservationSite, build_reservation_pod

__all__ = ["ReservationFacts", "reservation_on"]


class ReservationFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What is in the pod beyond the device and its own name."""

    platform: str = ""
    mounts: list[str] = []
    """Folders and device nodes of the host."""
    environment: dict[str, str] = {}
    runtime_class: str = ""
    privileged: bool = False


def reservation_on(node: Node, platforms: str) -> ReservationFacts:
    """Return what the reservation pod of the node's first card has; `platforms` is the setting."""
    site = ReservationSite(node=node.name, card=node.gpus[0].uuid, taints=node.taints)
    pod = build_reservation_pod(site, profile_for(node.platform, platforms), ReservationOptions())
    spec = cast("dict[str, Any]", pod["spec"])
    [container] = spec["containers"]
    return ReservationFacts(
        platform=node.platform,
        mounts=[volume["hostPath"]["path"] for volume in spec.get("volumes", [])],
        environment={each["name"]: each["value"] for each in container["env"] if "value" in each},
        runtime_class=spec.get("runtimeClassName", ""),
        privileged=bool(container["securityContext"].get("privileged")),
    )
