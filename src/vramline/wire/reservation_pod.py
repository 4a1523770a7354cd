"""The reservation pod: it holds one device, so that kubelet hands the card behind it to nobody else.

A manifest is a function of node, card, platform and options, and nothing of it is random: two writers make
the same pod, and the second one finds it there. Docs: docs/reservations.md.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

from vramline.model.node import Taint
from vramline.wire import keys
from vramline.wire.kubernetes import PodObject
from vramline.wire.platform_profile import HostMount, PlatformProfile
from vramline.wire.times import seconds_of
from vramline.wire.uuids import card_of

__all__ = [
    "NAME_PREFIX",
    "HostMount",
    "PlatformProfile",
    "Reservation",
    "ReservationOptions",
    "ReservationSite",
    "build_reservation_pod",
    "name_reservation",
    "read_reservation",
]

APP = "resource-reservation"
NAME_PREFIX = "gpu-reservation-"
CONTAINER = "reserve"
_USER = 65_532
_ERROR = "error: "
_NVML_TROUBLE = f"{_ERROR}unable to "
_WORDS = 400
"""How much of a container's last line is repeated."""
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class ReservationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator decides about reservation pods."""

    namespace: str = "vramline-reservations"
    image: str = ""
    service_account: str = "vramline-reserve"
    priority_class: str = "system-node-critical"
    """Whoever drove a reservation away would be given a card on which others run."""


class ReservationSite(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reservation is to be made."""

    node: str
    card: str
    ordinal: int = 1
    """Which try for the card it is: kubelet may have given another card to those before."""
    taints: tuple[Taint, ...] = ()
    resource: str = keys.GPU_COUNT
    """What kubelet calls the device."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation pod as the API server shows it."""

    name: str
    uid: str
    version: str
    node: str
    planned: str
    """The card for which it was made."""
    card: str = ""
    """The UUID of the card that kubelet gave; empty: not known yet."""
    failure: str = ""
    """Why it will never hold a card; empty: it holds one, or may still get one."""
    ending: bool = False
    created_at: float = 0.0


def name_reservation(node: str, card: str, ordinal: int = 1) -> str:
    """Return the pod's name: the same for everybody who means this card.

    >>> name_reservation("n1", "GPU-1")
    'gpu-reservation-a2f979443f91a925'
    >>> name_reservation("n1", "GPU-1", 2)
    'gpu-reservation-a2f979443f91a925-2'
    """
    digest = hashlib.sha256(f"{node}\0{card}".encode()).hexdigest()[:16]
    return f"{NAME_PREFIX}{digest}" + (f"-{ordinal}" if ordinal > 1 else "")


def build_reservation_pod(
    site: ReservationSite, profile: PlatformProfile, options: ReservationOptions
) -> dict[str, object]:
    """Return the pod's manifest."""
    spec: dict[str, object] = {
        "nodeName": site.node,
        "serviceAccountName": options.service_account,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Always",
        "tolerations": _tolerations(site.taints),
        "securityContext": _pod_security(profile),
        "containers": [_container(site, profile, options)],
    }
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    if profile.runtime_class:
        spec["runtimeClassName"] = profile.runtime_class
    if mounts := _all_mounts(profile):
        spec["volumes"] = [
            {"name": f"host-{number}", "hostPath": {"path": mount.host_path, "type": mount.kind}}
            for number, mount in enumerate(mounts)
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_reservation(site.node, site.card, site.ordinal),
            "namespace": options.namespace,
            "labels": {
                keys.KAI_APP_LABEL: APP,
                keys.KAI_GROUP_LABEL: _group_of(site),
                "app.kubernetes.io/name": "vramline",
                "app.kubernetes.io/component": "reservation",
            },
            "annotations": {**profile.annotations, keys.RESERVES: site.card},
        },
        "spec": spec,
    }


def read_reservation(pod: PodObject) -> Reservation | None:
    """Read a reservation pod of ours; None: it is another pod."""
    meta, annotations = pod.metadata, pod.metadata.annotations or {}
    planned = annotations.get(keys.RESERVES)
    node = pod.spec.node_name if pod.spec is not None else None
    if planned is None or not node or (meta.labels or {}).get(keys.KAI_APP_LABEL) != APP:
        return None
    return Reservation(
        name=meta.name or "",
        uid=meta.uid or "",
        version=meta.resource_version or "",
        node=node,
        planned=planned,
        card=card_of(annotations.get(keys.RESERVED_GPU) or ""),
        failure=_failure_of(pod) or _trouble_of(pod),
        ending=meta.deletion_timestamp is not None,
        created_at=0.0 if meta.creation_timestamp is None else seconds_of(meta.creation_timestamp),
    )


def _failure_of(pod: PodObject) -> str:
    """Return why kubelet will not run the pod any more."""
    status = pod.status
    if status is None or status.phase not in ("Failed", "Succeeded"):
        return ""
    reason = status.reason or status.phase
    return f"{reason}: {status.message}" if status.message else reason


def _trouble_of(pod: PodObject) -> str:
    """Return why the container cannot say which card it has; a card that is known stays known.

    That NVML does not work is its last line, and does not mend itself; what else ends it is tried again.
    """
    if keys.RESERVED_GPU in (pod.metadata.annotations or {}) or pod.status is None:
        return ""
    for status in pod.status.container_statuses or ():
        for state in (status.state, status.last_state):
            ended = state.terminated if state is not None else None
            words = (ended.message or "" if ended is not None else "").strip()
            last = words.splitlines()[-1] if words else ""
            if last.startswith(_NVML_TROUBLE):
                return last.removeprefix(_ERROR)[:_WORDS]
    return ""


def _group_of(site: ReservationSite) -> str:
    """Return what KAI's tools call the card: its UUID, unless kubelet gave another to the first try."""
    if site.ordinal == 1 and _LABEL.fullmatch(site.card):
        return site.card
    return name_reservation(site.node, site.card, site.ordinal)


def _tolerations(taints: Iterable[Taint]) -> list[dict[str, str]]:
    """Tolerate what the node is tainted with now, and what befalls nodes that restart."""
    restart = [
        {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": "NoExecute"}
        for trouble in ("not-ready", "unreachable")
    ]
    own = [
        {"key": taint.key, "operator": "Exists", **({"effect": taint.effect} if taint.effect else {})}
        for taint in taints
    ]
    return [*restart, *(each for each in own if each not in restart)]


def _pod_security(profile: PlatformProfile) -> dict[str, object]:
    if profile.privileged:
        return {"runAsUser": 0}
    context: dict[str, object] = {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return context | ({"supplementalGroups": list(profile.groups)} if profile.groups else {})


def _container_security(profile: PlatformProfile) -> dict[str, object]:
    if profile.privileged:
        return {"privileged": True, "readOnlyRootFilesystem": True}
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _container(
    site: ReservationSite, profile: PlatformProfile, options: ReservationOptions
) -> dict[str, object]:
    own = [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")]
    fields = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in own]
    given = [{"name": name, "value": value} for name, value in sorted(profile.env.items())]
    container: dict[str, object] = {
        "name": CONTAINER,
        "image": options.image,
        "args": ["reserve"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [*fields, *given],
        "resources": {
            "requests": {"cpu": "1m", "memory": "32Mi", site.resource: "1"},
            "limits": {"memory": "128Mi", site.resource: "1"},
        },
        "securityContext": _container_security(profile),
    }
    if mounts := _all_mounts(profile):
        container["volumeMounts"] = [
            {"name": f"host-{number}", "mountPath": mount.path, "readOnly": mount.read_only}
            for number, mount in enumerate(mounts)
        ]
    return container


def _all_mounts(profile: PlatformProfile) -> list[HostMount]:
    devices = [
        HostMount(host_path=path, path=path, read_only=False, kind="CharDevice") for path in profile.devices
    ]
    return [*profile.mounts, *devices]
