"""What a tenant may try: what is sent, and a word of the refusal."""

import copy
from collections.abc import Callable
from typing import Any

from e2e.admission_world import pod, pods_of
from json_patch import apply_patch
from vramline.model.pod import GpuShare
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.admission import AdmissionOptions, Admitted, plan_admission
from vramline.wire.allocation import AllocationRecord, encode_allocation

__all__ = [
    "ALLOCATION",
    "ALL_CARDS",
    "CHANGES",
    "CREATIONS",
    "NOT_HIS",
    "NO_RIGHT",
    "OUR_CARDS",
    "REPORT",
    "SIDE_DOORS",
    "Object",
    "admitted",
    "annotate",
]

Object = dict[str, Any]
Change = Callable[[Object], None]

TEAM = pods_of("team")
OWN = "/apis/vramline.io/v1alpha1"
ALONE = "written by Vramline alone"
ANEW = "create it anew"
NODE = "cannot name its node"
ENVIRONMENT = "NVIDIA_VISIBLE_DEVICES"
SCHEDULER = "by Vramline's scheduler alone"
GROUP = "label runai-gpu-group"
KAI = "belongs in KAI's own namespace"

ALLOCATION = encode_allocation(
    AllocationRecord(node="n1", gpus=(GpuShare("GPU-1", Mib(8000)),), ledger_version=7)
)
GREEDY = ALLOCATION.replace("8000", "80000")
TINY_SEAL = '{"gpus":1,"size":{"type":"mib","mib":1}}'
DEVICE = {"nvidia.com/gpu": "1"}
RESERVATION = {"app": "kai-resource-reservation", "runai-gpu-group": "g"}
ALL_CARDS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


def admitted(name: str, **fields: Any) -> Object:
    """A pod as the webhook would store it."""
    body = pod(name, **fields)
    plan = plan_admission(body, operation="CREATE", options=AdmissionOptions())
    assert isinstance(plan, Admitted)
    return apply_patch(body, plan.patch)


def forged(**fields: Any) -> Object:
    return pod("forged", **fields)


SEALED = admitted("forged", annotations={"gpu-memory": "1"}, initContainers=[{"name": "init", "image": "i"}])
OUR_CARDS: Object = SEALED["spec"]["containers"][0]["env"][0]


def with_environment(body: Object, *env: Object, where: str = "containers") -> Object:
    changed = copy.deepcopy(body)
    changed["spec"][where][0]["env"] = list(env)
    return changed


def without_mark(body: Object) -> Object:
    changed = copy.deepcopy(body)
    del changed["spec"]["containers"][0]["resources"]
    return changed


def hasty(**fields: Any) -> tuple[Object, str]:
    """A pod that names its node."""
    return forged(nodeName="n1", **fields), NODE


# ── forged at creation (T1, T2, T4) ──────────────────────────────────────────────────────────────────

CREATIONS: dict[str, tuple[Object, str]] = {
    "an allocation": (forged(annotations={keys.ALLOCATION: GREEDY}), ALONE),
    "an empty allocation": (forged(annotations={keys.ALLOCATION: ""}), ALONE),
    "visible devices": (forged(annotations={keys.VISIBLE_DEVICES: "GPU-1"}), ALONE),
    "a whole bound pod": (
        forged(annotations={keys.ALLOCATION: GREEDY, keys.VISIBLE_DEVICES: "GPU-1"}, nodeName="n1"),
        ALONE,
    ),
    "a seal": (forged(annotations={keys.ASK: TINY_SEAL}), ENVIRONMENT),
    "a seal without the mark": (without_mark(SEALED), "by the webhook alone"),
    "a seal with all cards": (with_environment(SEALED, ALL_CARDS), ENVIRONMENT),
    "a seal with all cards at first": (
        with_environment(SEALED, ALL_CARDS, where="initContainers"),
        ENVIRONMENT,
    ),
    "a seal with two answers": (with_environment(SEALED, OUR_CARDS, ALL_CARDS), ENVIRONMENT),
    "a seal without any answer": (with_environment(SEALED), ENVIRONMENT),
    "a device on a node": hasty(limits=DEVICE),
    "a shared device on a node": hasty(limits={"nvidia.com/gpu.shared": "1"}),
    "memory on a node": hasty(limits={"nvidia.com/gpumem": "1"}),
    "our mark on a node": hasty(limits={"vramline.io/managed": "1"}),
    "our spelling on a node": hasty(annotations={"vramline.io/vram": "1"}),
    "KAI's memory on a node": hasty(annotations={"gpu-memory": "1"}),
    "KAI's fraction on a node": hasty(annotations={"gpu-fraction": "0.1"}),
    "KAI's container on a node": hasty(annotations={"nvidia.com/container.main.gpu-memory.limit": "1"}),
    "an admitted pod on a node": ({**SEALED, "spec": {**SEALED["spec"], "nodeName": "n1"}}, NODE),
    "another scheduler and a node": hasty(limits=DEVICE, schedulerName="mine"),
    "a reservation pod of KAI on a node": hasty(labels=RESERVATION, limits=DEVICE),
    "a reservation pod of KAI": (forged(labels=RESERVATION), KAI),
    "the card of a group of KAI": (forged(annotations={keys.KAI_RESERVED_UUID: "GPU-1"}), KAI),
    "devices of HAMi": (
        forged(annotations={keys.HAMI_ALLOCATED: "GPU-1,NVIDIA,80000,100:;"}),
        "by HAMi's scheduler",
    ),
    "an init container on a node": hasty(
        initContainers=[{"name": "init", "image": "i", "resources": {"limits": DEVICE}}]
    ),
}

SIDE_DOORS: dict[str, tuple[Object, str]] = {
    "all cards": (with_environment(forged(), ALL_CARDS), "cannot be set in this namespace"),
    "HAMi's switch": (
        with_environment(forged(), {"name": "CUDA_DISABLE_CONTROL", "value": "true"}),
        "cannot be set in this namespace",
    ),
    "privilege": (
        forged(
            initContainers=[{"name": "init", "image": "i", "securityContext": {"privileged": True}}],
        ),
        "privileged containers",
    ),
    **{
        f"the host's {path}": (
            forged(volumes=[{"name": "v", "hostPath": {"path": path}}]),
            "a hostPath of / or /dev",
        )
        for path in ("/", "/dev", "//dev/", "/dev/nvidia0", "/./dev")
    },
    "another scheduler": (forged(limits=DEVICE, schedulerName="mine"), "not by mine"),
    "the default scheduler": (forged(annotations={"gpu-memory": "1"}), "not by default-scheduler"),
}

# ── changed afterwards (T3) ──────────────────────────────────────────────────────────────────────────


def annotate(key: str, value: str | None) -> Change:
    """A change of one annotation; None removes it."""

    def change(body: Object) -> None:
        if value is None:
            del body["metadata"]["annotations"][key]
        else:
            body["metadata"]["annotations"][key] = value

    return change


def label(labels: dict[str, str]) -> Change:
    return lambda body: body["metadata"].setdefault("labels", {}).update(labels)


CHANGES: dict[str, tuple[Change, str]] = {
    "a larger allocation": (annotate(keys.ALLOCATION, GREEDY), ALONE),
    "no allocation": (annotate(keys.ALLOCATION, None), ALONE),
    "other cards": (annotate(keys.VISIBLE_DEVICES, "GPU-2"), ALONE),
    "all cards": (annotate(keys.VISIBLE_DEVICES, "all"), ALONE),
    "no cards": (annotate(keys.VISIBLE_DEVICES, None), ALONE),
    "a smaller seal": (annotate(keys.ASK, TINY_SEAL), ANEW),
    "no seal": (annotate(keys.ASK, None), "something else"),
    "a smaller request": (annotate("gpu-memory", "1"), ANEW),
    "no request": (annotate("gpu-memory", None), ANEW),
    "a second request": (annotate("vramline.io/vram", "1"), ANEW),
    "more GPUs": (annotate("gpu-fraction-num-devices", "2"), ANEW),
    "another mode": (annotate("vramline.io/realtime-check", "disabled"), ANEW),
    "another card": (annotate("nvidia.com/use-gpuuuid", "GPU-2"), ANEW),
    "a container's request": (annotate("nvidia.com/container.main.gpu-memory.request", "1"), ANEW),
    "HAMi's devices": (annotate("hami.io/vgpu-devices-allocated", "GPU-1,NVIDIA,1,1:;"), ANEW),
    "KAI's group": (label({"runai-gpu-group": "g"}), GROUP),
    "KAI's groups": (label({"runai-gpu-group/g": "g"}), GROUP),
    # Two policies refuse it, and the API server names whichever it asked first; both name the label.
    "a reservation pod of KAI": (label(RESERVATION), "runai-gpu-group"),
    "the card of a group of KAI": (annotate(keys.KAI_RESERVED_UUID, "GPU-1"), KAI),
}

# ── what is not a tenant's to write (T2, T8) ─────────────────────────────────────────────────────────

REPORT: Object = {
    "apiVersion": "vramline.io/v1alpha1",
    "kind": "GpuReport",
    "metadata": {"name": "n1"},
    "status": {"observedAt": "2026-01-01T00:00:00Z", "gpus": []},
}
LEDGER: Object = {
    "apiVersion": "vramline.io/v1alpha1",
    "kind": "GpuLedger",
    "metadata": {"name": "n1"},
    "spec": {"epoch": 9, "claims": {"GPU-1": [{"podUID": "u", "pod": "team/x", "mib": 80000}]}},
}
INTENT: Object = {
    "apiVersion": "vramline.io/v1alpha1",
    "kind": "BindRequest",
    "metadata": {"name": "waiting"},
    "spec": {"podUID": "u", "node": "n1", "gpus": [{"uuid": "GPU-1", "mib": 1}]},
}
BINDING: Object = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "waiting", "annotations": {keys.ALLOCATION: GREEDY}},
    "target": {"kind": "Node", "name": "n1"},
}
STATUS: Object = {"metadata": {"annotations": {keys.ALLOCATION: GREEDY}}}
POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/vramline-sealed-keys"

NOT_HIS: dict[str, tuple[str, str, Object, str]] = {
    "a pod's status": ("PATCH", f"{TEAM}/victim/status", STATUS, ALONE),
    "a binding with cards": ("POST", f"{TEAM}/waiting/binding", BINDING, SCHEDULER),
    "a binding by the old address": ("POST", "/api/v1/namespaces/team/bindings", BINDING, SCHEDULER),
    "a report": ("POST", f"{OWN}/gpureports", REPORT, "by the agent on that node alone"),
    "a ledger": ("POST", f"{OWN}/gpuledgers", LEDGER, SCHEDULER),
    "a bind request": ("POST", f"{OWN}/namespaces/team/bindrequests", INTENT, SCHEDULER),
}
"""What not even an administrator writes: method, path, body, word."""

NO_RIGHT: dict[str, tuple[str, str, Object]] = {
    **{name: (method, path, body) for name, (method, path, body, _) in NOT_HIS.items()},
    "a plain binding": ("POST", f"{TEAM}/waiting/binding", {**BINDING, "metadata": {"name": "waiting"}}),
    "a node": ("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {keys.GPUS_PHYSICAL: "9"}}}),
    "a namespace": ("PATCH", "/api/v1/namespaces/team", {"metadata": {"labels": {keys.SIDE_DOORS: "open"}}}),
    "a policy": ("DELETE", POLICY, {}),
    "an agent's token": (
        "POST",
        "/api/v1/namespaces/vramline-agent/serviceaccounts/vramline-agent/token",
        {"spec": {}},
    ),
}
"""What the role of a tenant does not allow in the first place."""
