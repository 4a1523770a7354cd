"""From the model back to plain manifests, so that a state can be written down and replayed.

What `read_node` and `read_pod` read is written such that they read it again. Not everything can be said in
a manifest: a node's frozen state, compute shares other than 100 % and the marks of a release in progress
that only the ledger keeps are left out.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_UP, Decimal
from typing import Any, assert_never

from msgspec import UNSET

from vramline.model.ask import Ask, MibSize, ShareSize, UnsizedSize, WholeSize
from vramline.model.claim import Claim
from vramline.model.gpu import Health, PhysicalGpu
from vramline.model.node import HostRoom, Node
from vramline.model.observation import GpuProcess, Observation, Unknown
from vramline.model.pod import GpuShare, HostNeeds, Pod, PodPhase
from vramline.wire import keys
from vramline.wire.allocation import AllocationRecord, encode_allocation
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess, encode_report
from vramline.wire.times import format_time

__all__ = ["write_node", "write_pod", "write_report"]

Manifest = dict[str, Any]

_PHASES = {
    PodPhase.PENDING: "Pending",
    PodPhase.BOUND: "Pending",
    PodPhase.RUNNING: "Running",
    PodPhase.RELEASING: "Running",
    PodPhase.FINISHED: "Succeeded",
}


def write_node(node: Node, *, now: float) -> Manifest:
    """Write a v1 Node; `now` is its last heartbeat, which a replay takes for the present."""
    metadata: Manifest = {"name": node.name}
    if node.labels:
        metadata["labels"] = dict(node.labels)
    cordoned = sorted(gpu.uuid for gpu in node.gpus if gpu.cordoned)
    if cordoned:
        metadata["annotations"] = {keys.HAMI_CORDON: ",".join(cordoned)}
    spec: Manifest = {}
    if node.cordoned:
        spec["unschedulable"] = True
    if node.taints:
        spec["taints"] = [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
    ready = {
        "type": "Ready",
        "status": "True" if node.ready else "False",
        "lastHeartbeatTime": format_time(now),
    }
    status = {"allocatable": _write_room(node.host, node.advertised), "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def write_report(node: Node, observations: Mapping[str, Observation]) -> Manifest:
    """Write the GpuReport that tells the cards of a node and what was seen on them, oldest look first."""
    times = [seen.at for seen in observations.values()]
    return encode_report(
        GpuReport(
            node=node.name,
            observed_at=min(times) if times else None,
            platform=node.platform,
            gpus=tuple(_write_card(gpu, observations.get(gpu.uuid)) for gpu in node.gpus),
        )
    )


def write_pod(pod: Pod, claims: Iterable[Claim], *, now: float, ledger_version: int = 0) -> Manifest:
    """Write a v1 Pod; `claims` are the cards it holds. A pod that is releasing is one being deleted."""
    claims = tuple(claims)
    annotations, limits = _write_ask(pod.ask) if pod.ask is not None else ({}, {})
    metadata: Manifest = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.created_at is not None:
        metadata["creationTimestamp"] = format_time(pod.created_at)
    if pod.phase is PodPhase.RELEASING:
        metadata["deletionTimestamp"] = format_time(now)
    if claims and pod.node is not None:
        shares = tuple(GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims)
        record = AllocationRecord(node=pod.node, gpus=shares, ledger_version=ledger_version)
        annotations[keys.ALLOCATION] = encode_allocation(record)
    if annotations:
        metadata["annotations"] = annotations
    spec = _write_spec(pod.host, limits)
    if pod.node is not None:
        spec["nodeName"] = pod.node
    if pod.priority:
        spec["priority"] = pod.priority
    status = {"phase": _PHASES[pod.phase], **_write_containers(pod)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _write_room(room: HostRoom, advertised: int | None) -> dict[str, str]:
    amounts = {
        "cpu": None if room.cpu_milli is None else f"{room.cpu_milli}m",
        "memory": None if room.memory_bytes is None else str(room.memory_bytes),
        "pods": None if room.pods is None else str(room.pods),
        keys.GPU_COUNT: None if advertised is None else str(advertised),
    }
    return {resource: amount for resource, amount in amounts.items() if amount is not None}


def _write_card(gpu: PhysicalGpu, seen: Observation | None) -> ReportedGpu:
    return ReportedGpu(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model or None,
        total_mib=gpu.total,
        reserved_mib=_known(gpu.reserved),
        replicas=gpu.slots,
        unified=gpu.unified or None,
        numa=gpu.numa,
        link_group=gpu.link_group,
        health=gpu.health if gpu.health is not Health.HEALTHY else None,
        mig=gpu.mig or None,
        used_mib=None if seen is None else _known(seen.used),
        utilization_percent=None if seen is None else _known(seen.utilization_percent),
        temperature_c=None if seen is None else _known(seen.temperature_c),
        processes=None if seen is None else _write_processes(seen.processes),
    )


def _write_processes(processes: tuple[GpuProcess, ...] | Unknown) -> tuple[ReportedProcess, ...] | None:
    if isinstance(processes, Unknown):
        return None
    return tuple(
        ReportedProcess(
            pid=process.pid,
            used_mib=_known(process.used),
            pod_uid=UNSET if isinstance(process.pod_uid, Unknown) else process.pod_uid,
        )
        for process in processes
    )


def _known(value: int | Unknown) -> int | None:
    return None if isinstance(value, Unknown) else value


def _write_ask(ask: Ask) -> tuple[dict[str, str], dict[str, str]]:
    """Return the annotations and the limits that say the same as the ask."""
    annotations: dict[str, str] = {}
    limits: dict[str, str] = {}
    match ask.size:
        case MibSize(mib):
            annotations |= {keys.VRAM: str(mib), keys.GPUS: str(ask.gpus)}
        case ShareSize(numerator, denominator):
            share = (Decimal(numerator) / denominator).quantize(Decimal("1e-9"), ROUND_UP).normalize()
            annotations |= {keys.KAI_FRACTION: f"{share:f}", keys.KAI_FRACTION_DEVICES: str(ask.gpus)}
        case WholeSize():
            limits |= {keys.GPU_COUNT: str(ask.gpus), keys.GPU_MEMORY_PERCENT: "100"}
        case UnsizedSize():
            limits |= {keys.GPU_COUNT: str(ask.gpus)}
        case _:
            assert_never(ask.size)
    if ask.cores:
        limits |= {keys.GPU_COUNT: str(ask.gpus), keys.GPU_CORES: str(ask.cores)}
    return annotations | _write_choices(ask), limits


def _write_choices(ask: Ask) -> dict[str, str]:
    wishes = ask.constraints
    words = {
        keys.HAMI_USE_TYPE: ",".join(wishes.use_models),
        keys.HAMI_NOUSE_TYPE: ",".join(wishes.avoid_models),
        keys.HAMI_USE_UUID: ",".join(wishes.use_uuids),
        keys.HAMI_NOUSE_UUID: ",".join(wishes.avoid_uuids),
        keys.HAMI_NUMA_BIND: "true" if wishes.numa_bind else "",
        keys.HAMI_NODE_POLICY: ask.node_policy or "",
        keys.HAMI_GPU_POLICY: ask.gpu_policy or "",
        keys.REALTIME_CHECK: ask.mode or "",
        keys.HAMI_ENABLE_REALTIME: "" if ask.enable_realtime is None else str(ask.enable_realtime).lower(),
    }
    return {key: word for key, word in words.items() if word}


def _write_spec(needs: HostNeeds, limits: dict[str, str]) -> Manifest:
    requests = {}
    if needs.cpu_milli:
        requests["cpu"] = f"{needs.cpu_milli}m"
    if needs.memory_bytes:
        requests["memory"] = str(needs.memory_bytes)
    resources = {"requests": requests, "limits": limits}
    spec: Manifest = {
        "containers": [{"name": "main", "resources": {k: v for k, v in resources.items() if v}}]
    }
    if needs.node_selector:
        spec["nodeSelector"] = dict(needs.node_selector)
    if needs.affinity:
        terms = {"nodeSelectorTerms": _write_terms(needs)}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if needs.tolerations:
        spec["tolerations"] = [
            {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
            for t in needs.tolerations
        ]
    return spec


def _write_terms(needs: HostNeeds) -> list[Manifest]:
    names = needs.affinity_names or ((),) * len(needs.affinity)
    terms = []
    for group, allowed in zip(needs.affinity, names, strict=True):
        term: Manifest = {
            # A group that can match nothing holds a requirement without a key; an empty term says the same.
            "matchExpressions": [
                {"key": each.key, "operator": each.operator, "values": list(each.values)}
                for each in group
                if each.key
            ]
        }
        if allowed:
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": list(allowed)}]
        terms.append(term)
    return terms


def _write_containers(pod: Pod) -> Manifest:
    """Write since when the pod's container runs, and when it ended; neither: it waits."""
    if pod.started_at is None or pod.started_at == float("-inf"):
        return {}
    started = {"startedAt": format_time(pod.started_at)}
    if pod.ended_at is None:
        return {"containerStatuses": [{"name": "main", "state": {"running": started}}]}
    ended = {**started, "finishedAt": format_time(pod.ended_at)}
    return {"containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
