"""The parts of Kubernetes objects that placement reads. Unknown fields are ignored, null is absent."""

from typing import Any

import msgspec

from vramline.wire.times import Timestamp

__all__ = [
    "Affinity",
    "Container",
    "ContainerState",
    "ContainerStatus",
    "NodeAffinity",
    "NodeCondition",
    "NodeObject",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "NodeTaint",
    "ObjectMeta",
    "OwnerReference",
    "PodCondition",
    "PodObject",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PodToleration",
    "Quantities",
    "ResourceNeeds",
    "Volume",
    "WorkloadObject",
    "WorkloadSpec",
]

Quantities = dict[str, str | int | float]
"""Resource amounts; YAML may give them as numbers."""


class _Lenient(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all foreign structs."""


class OwnerReference(_Lenient, frozen=True, kw_only=True):
    """Which object made this one."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class ObjectMeta(_Lenient, frozen=True, kw_only=True):
    """Name and surroundings of an object."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    owner_references: list[OwnerReference] | None = None
    resource_version: str | None = None


class ResourceNeeds(_Lenient, frozen=True, kw_only=True):
    """Requests and limits of a container or pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(_Lenient, frozen=True, kw_only=True):
    """Only whether it binds a port of the host matters."""

    host_port: int | None = None


class Container(_Lenient, frozen=True, kw_only=True):
    """One container; an init container that restarts always is a sidecar."""

    name: str = ""
    resources: ResourceNeeds | None = None
    restart_policy: str | None = None
    ports: list[ContainerPort] | None = None

    @property
    def is_sidecar(self) -> bool:
        """Whether this init container stays while the main ones run."""
        return self.restart_policy == "Always"


class NodeSelectorRequirement(_Lenient, frozen=True, kw_only=True):
    """key, operator, values."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(_Lenient, frozen=True, kw_only=True):
    """All its requirements must hold; an empty term matches no node."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(_Lenient, frozen=True, kw_only=True):
    """One of its terms must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Lenient, frozen=True, kw_only=True):
    """Required terms count; preferred ones are only named."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[Any] | None = None


class Affinity(_Lenient, frozen=True, kw_only=True):
    """Affinity to nodes counts; affinity between pods is only named."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodToleration(_Lenient, frozen=True, kw_only=True):
    """A toleration as written."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Volume(_Lenient, frozen=True, kw_only=True):
    """Only whether it binds the pod to a place matters."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class PodSpec(_Lenient, frozen=True, kw_only=True):
    """What a pod wants."""

    node_name: str | None = None
    scheduler_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: ResourceNeeds | None = None
    overhead: Quantities | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    topology_spread_constraints: list[Any] | None = None
    scheduling_gates: list[Any] | None = None
    resource_claims: list[Any] | None = None
    volumes: list[Volume] | None = None
    host_network: bool | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    priority_class_name: str | None = None


class StateRunning(_Lenient, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: Timestamp | None = None


class StateTerminated(_Lenient, frozen=True, kw_only=True):
    """When a container ran."""

    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    message: str | None = None


class ContainerState(_Lenient, frozen=True, kw_only=True):
    """Running, terminated, or (neither) waiting."""

    running: StateRunning | None = None
    terminated: StateTerminated | None = None


class ContainerStatus(_Lenient, frozen=True, kw_only=True):
    """How far one container has got."""

    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodCondition(_Lenient, frozen=True, kw_only=True):
    """Something that is so or not, and since when."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    last_transition_time: Timestamp | None = None


class PodStatus(_Lenient, frozen=True, kw_only=True):
    """How far a pod has got."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    nominated_node_name: str | None = None
    start_time: Timestamp | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class PodObject(_Lenient, frozen=True, kw_only=True):
    """v1 Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeTaint(_Lenient, frozen=True, kw_only=True):
    """A taint as written."""

    key: str
    value: str | None = None
    effect: str = ""


class NodeSpec(_Lenient, frozen=True, kw_only=True):
    """What an operator set on a node."""

    unschedulable: bool | None = None
    taints: list[NodeTaint] | None = None


class NodeCondition(_Lenient, frozen=True, kw_only=True):
    """One condition; `Ready` is the one that counts."""

    type: str
    status: str = ""
    last_heartbeat_time: Timestamp | None = None
    last_transition_time: Timestamp | None = None


class NodeStatus(_Lenient, frozen=True, kw_only=True):
    """What kubelet says of its node."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[NodeCondition] | None = None


class NodeObject(_Lenient, frozen=True, kw_only=True):
    """v1 Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.metadata.name or ""


class PodTemplate(_Lenient, frozen=True, kw_only=True):
    """What every pod of a workload looks like."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class WorkloadSpec(_Lenient, frozen=True, kw_only=True):
    """Spec of Deployment, StatefulSet, ReplicaSet and Job together."""

    template: PodTemplate
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class WorkloadObject(_Lenient, frozen=True, kw_only=True):
    """A Deployment, StatefulSet, ReplicaSet or Job."""

    kind: str
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec
