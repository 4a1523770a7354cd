"""A population as API objects, about as large as real ones: whoever starts anew has to read them."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from vramline.bench.population import Machine, Population
from vramline.model.pod import GpuShare
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.allocation import AllocationRecord, encode_allocation
from vramline.wire.ask_annotation import encode_ask
from vramline.wire.asks import read_spelled_ask
from vramline.wire.kubernetes import PodObject
from vramline.wire.times import format_time

__all__ = ["asking_pod", "ledger_objects", "node_objects", "pod_objects", "report_objects"]

Document = dict[str, Any]

_STARTED = 1_767_225_600.0  # 2026-01-01
_TEMPLATES = 40
"""Pods come from templates: some of them often, most of them seldom."""
_FIELDS_V1: Document = {"f:metadata": {"f:annotations": {".": {}}, "f:labels": {".": {}, "f:app": {}}}}
_NODE_STATUS: Document = {
    "conditions": [
        {
            "type": kind,
            "status": status,
            "reason": f"Kubelet{kind}",
            "message": f"kubelet says so of {kind}",
            "lastHeartbeatTime": format_time(_STARTED),
            "lastTransitionTime": format_time(_STARTED),
        }
        for kind, status in (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"))
    ],
    "images": [
        {
            "names": [
                f"registry.example/team/image-{each}@sha256:{each:064x}",
                f"registry.example/team/image-{each}:1.{each}",
            ],
            "sizeBytes": 10**9 + each,
        }
        for each in range(40)
    ],
    "nodeInfo": {"kernelVersion": "6.8.0", "osImage": "Ubuntu 24.04", "kubeletVersion": "v1.35.1"},
}
_MANAGED = {"cpu": "4", "memory": "16Gi", keys.MANAGED: "1"}
_POD_SPEC: Document = {
    "schedulerName": "vramline",
    "serviceAccountName": "default",
    "priority": 0,
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "tolerations": [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute"}
        for what in ("not-ready", "unreachable")
    ],
    "containers": [
        {
            "name": "main",
            "image": "registry.example/team/server:1.4",
            "args": ["serve", "--model", "/models/main", "--port", "8000"],
            "ports": [{"containerPort": 8000, "protocol": "TCP"}],
            "env": [
                {
                    "name": keys.VISIBLE_DEVICES_ENV,
                    "valueFrom": {
                        "fieldRef": {"fieldPath": f"metadata.annotations['{keys.VISIBLE_DEVICES}']"}
                    },
                },
                {"name": "MODEL", "value": "main"},
            ],
            "resources": {"limits": _MANAGED, "requests": _MANAGED},
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 5},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
            "imagePullPolicy": "IfNotPresent",
        }
    ],
    "volumes": [
        {
            "name": "token",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "root-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]
            },
        }
    ],
}


def node_objects(population: Population) -> Iterator[Document]:
    """Yield every Node."""
    for machine in population.machines:
        yield _node(machine)


def report_objects(population: Population, *, observed_at: float) -> Iterator[Document]:
    """Yield every GpuReport, as of one moment."""
    for machine in population.machines:
        status = {
            "observedAt": format_time(observed_at),
            "platform": "x86",
            "gpus": [_reported(machine, index) for index in range(len(machine.cards))],
        }
        yield _own("GpuReport", machine.name, status=status)


def ledger_objects(population: Population) -> Iterator[Document]:
    """Yield a GpuLedger for every node with claims."""
    for machine in population.machines:
        claims = {
            card.uuid: [
                {
                    "podUID": _uid(claim.pod),
                    "pod": f"{_namespace(claim.pod)}/{_name(claim.pod)}",
                    "mib": claim.mib,
                }
                for claim in card.claims
            ]
            for card in machine.cards
            if card.claims
        }
        if claims:
            yield _own("GpuLedger", machine.name, spec={"epoch": 1, "claims": claims})


def pod_objects(population: Population) -> Iterator[Document]:
    """Yield every pod: first those that run, then those that ask, in asks of all sizes."""
    for number, (machine, card) in enumerate(population.homes):
        mib = next(claim.mib for claim in card.claims if claim.pod == number)
        yield _running_pod(number, machine.name, card.uuid, mib)
    shape = population.shape
    chance = random.Random(shape.seed + 1)  # noqa: S311 — a benchmark, not a secret
    templates = [_mixed_ask(chance, shape.gpus) for _ in range(_TEMPLATES)]
    often = [1 / place for place in range(1, _TEMPLATES + 1)]
    for number in range(shape.pods, shape.pods + shape.waiting):
        yield asking_pod(number, chance.choices(templates, weights=often)[0])


def asking_pod(number: int, annotations: dict[str, str]) -> Document:
    """Return a pod as admission leaves it, that no node has yet."""
    pod = _pod(number, annotations)
    pod["metadata"]["annotations"] = annotations | {keys.ASK: _sealed(pod)}
    pod["status"] = {
        "phase": "Pending",
        "qosClass": "Burstable",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    return pod


def _mixed_ask(chance: random.Random, gpus: int) -> dict[str, str]:
    """Seven in ten ask in MiB, two for a share, one for whole cards; one in ten names models."""
    wanted = min(gpus, chance.choices((1, 2, 4, 8), weights=(80, 10, 7, 3))[0])
    models = {keys.HAMI_USE_TYPE: "H100,A100"} if chance.random() < 0.1 else {}
    kind = chance.choices(("mib", "share", "whole"), weights=(7, 2, 1))[0]
    if kind == "share":
        devices = {keys.KAI_FRACTION_DEVICES: str(wanted)} if wanted > 1 else {}
        return {keys.KAI_FRACTION: chance.choice(("0.5", "0.25", "0.125")), **devices, **models}
    mib = (
        chance.randrange(1_000, 40_000, 100)
        if kind == "mib"
        else chance.choice((14_500, 40_000, 44_000, 80_000))
    )
    return {keys.VRAM: str(mib), keys.GPUS: str(wanted), **models}


def _node(machine: Machine) -> Document:
    room = {"cpu": "128", "memory": "1024Gi", "pods": "110", keys.GPU_COUNT: str(len(machine.cards))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta(machine.name, f"uid-of-{machine.name}", labels=_labels(machine)),
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"example://{machine.name}"},
        "status": {"allocatable": room, "capacity": room, **_NODE_STATUS},
    }


def _labels(machine: Machine) -> dict[str, str]:
    zone = int(machine.name.rpartition("-")[2]) % 3
    return {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        keys.HOSTNAME: machine.name,
        "node.kubernetes.io/instance-type": "gpu.8x",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": f"zone-{zone}",
        **{f"feature.node.kubernetes.io/cpu-cpuid.F{each}": "true" for each in range(40)},
        keys.GFD_COUNT: str(len(machine.cards)),
        keys.GFD_MEMORY: str(machine.total),
        keys.GFD_PRODUCT: machine.model.replace(" ", "-"),
        keys.GFD_REPLICAS: "1",
    }


def _reported(machine: Machine, index: int) -> Document:
    card = machine.cards[index]
    processes: list[Document] = [
        {"pid": 10_000 + claim.pod, "usedMiB": claim.used, "podUID": _uid(claim.pod)} for claim in card.claims
    ]
    if card.stranger:
        processes.append({"pid": 4_711, "usedMiB": card.stranger, "podUID": None})
    return {
        "uuid": card.uuid,
        "index": index,
        "model": machine.model,
        "totalMiB": machine.total,
        "reservedMiB": machine.reserved,
        "usedMiB": sum(each["usedMiB"] for each in processes),
        "utilizationPercent": 13 * index % 100,
        "temperatureC": 40 + index,
        "health": "Healthy",
        "replicas": 1,
        "unified": False,
        "processes": processes,
    }


def _running_pod(number: int, node: str, uuid: str, mib: int) -> Document:
    record = AllocationRecord(node=node, gpus=(GpuShare(uuid, Mib(mib)),), ledger_version=number + 1)
    allocated = {keys.ALLOCATION: encode_allocation(record), keys.VISIBLE_DEVICES: uuid}
    pod = _pod(number, {keys.VRAM: str(mib)})
    pod["metadata"]["annotations"] |= {keys.ASK: _sealed(pod), **allocated}
    pod["spec"]["nodeName"] = node
    moment = format_time(_STARTED + number)
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    pod["status"] = {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "qosClass": "Burstable",
        "startTime": moment,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind in kinds],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "registry.example/team/server:1.4",
                "imageID": f"registry.example/team/server@sha256:{number:064x}",
                "containerID": f"containerd://{number:064x}",
                "state": {"running": {"startedAt": moment}},
                "lastState": {},
            }
        ],
    }
    return pod


def _pod(number: int, annotations: dict[str, str]) -> Document:
    labels = {"app": "server", "pod-template-hash": f"{number:010x}", "team": "a"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"server-{number:x}", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **_meta(_name(number), _uid(number), labels=labels),
            "namespace": _namespace(number),
            "creationTimestamp": format_time(_STARTED + number),
            "annotations": annotations,
            "ownerReferences": [{**owner, "uid": _uid(10**9 + number)}],
        },
        "spec": dict(_POD_SPEC),
    }


def _sealed(pod: Document) -> str:
    """Return what admission writes on the pod."""
    ask = read_spelled_ask(msgspec.convert(pod, PodObject))
    return "" if ask is None else encode_ask(ask)


def _own(kind: str, name: str, **content: Document) -> Document:
    return {
        "apiVersion": f"{keys.GROUP}/v1alpha1",
        "kind": kind,
        "metadata": _meta(name, f"{kind.lower()}-{name}", labels={}),
        **content,
    }


def _meta(name: str, uid: str, *, labels: dict[str, str]) -> Document:
    managers = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": format_time(_STARTED),
            "fieldsType": "FieldsV1",
            "fieldsV1": _FIELDS_V1,
        }
        for manager in ("kube-controller-manager", "kubelet")
    ]
    return {"name": name, "uid": uid, "labels": labels, "managedFields": managers}


def _name(number: int) -> str:
    return f"server-{number:06d}"


def _namespace(number: int) -> str:
    return f"team-{number % 10}"


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"
