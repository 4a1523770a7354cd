"""The one list of metrics. How figures become what Prometheus reads is in `exposition`.

Figures are counted when somebody asks, from the state itself: a gauge here cannot drift from the truth.
"""

import enum

import msgspec

__all__ = ["CONTENT_TYPE", "ONE_BY_ONE", "Gauge", "HamiGauge", "Sample"]

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
"""What `exposition` writes."""

_DEVICE = ("zone", "node", "device_uuid", "device_index", "device_type")
_POD = ("zone", "namespace", "node", "pod", "container_index", "device_uuid")


class Gauge(enum.Enum):
    """Every metric: name, help, labels. Documented in docs/metrics.md."""

    NODES = ("vramline_nodes", "Nodes by what their GPUs may be used for.", ("state",))
    GPU_MIB = (
        "vramline_gpu_mib",
        "Memory of one physical GPU, in MiB, by what it is.",
        ("node", "gpu", "part"),
    )
    OBSERVATION_AGE = (
        "vramline_observation_age_seconds",
        "Age of the newest look at a GPU; absent where nobody looked.",
        ("node", "gpu"),
    )
    OBSERVED_GPUS = (
        "vramline_observed_gpus",
        "GPUs by who looked at them last, and whether that still counts.",
        ("source", "state"),
    )
    POD_MIB = (
        "vramline_pod_mib",
        "Memory of one pod on one GPU, in MiB: what it claimed, and what it was seen to use.",
        ("namespace", "pod", "gpu", "part"),
    )
    PODS_NOT_SHOWN = ("vramline_pods_not_shown", "Pods that vramline_pod_mib leaves out; it has a limit.", ())
    CLAIMS = ("vramline_claims", "Claims in the books, by state.", ("state",))
    PODS = ("vramline_pods", "Pods that ask for GPUs, by phase.", ("phase",))
    DISAGREEMENTS = (
        "vramline_ledger_disagreements",
        "Live pods with an allocation of ours that no ledger confirms. Anything but 0 is a fault.",
        (),
    )
    PREEMPTORS = (
        "vramline_preemptors",
        "Pods that wait for the memory of others who were sent away for them.",
        (),
    )
    EVICTIONS = ("vramline_evictions_total", "Pods sent away by this replica where VRAM alone was short.", ())
    DECISIONS = (
        "vramline_decisions_total",
        "Decisions by what they meant for the pod, and why it has to wait.",
        ("outcome", "reason"),
    )
    PENDING = ("vramline_pending_pods", "Pods that wait for GPUs, by why they do.", ("reason",))
    PENDING_OLDEST = (
        "vramline_pending_oldest_seconds",
        "For how long the oldest of the pods that wait for GPUs has waited.",
        (),
    )
    API_WRITES = (
        "vramline_api_writes_total",
        "Writes to the API server, by how they ended.",
        ("method", "resource", "outcome"),
    )
    VRAM_GIB_SECONDS = (
        "vramline_vram_gib_seconds_total",
        "GPU memory times time, by namespace and by what it was.",
        ("namespace", "part"),
    )
    HISTORY_LOST = ("vramline_history_lost_total", "What history should have kept and could not.", ())
    LEADING = ("vramline_leading", "1 while this replica may bind pods.", ())

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


class HamiGauge(enum.Enum):
    """Metrics under the names of HAMi 2.10, for dashboards that were made for it. Off unless wanted."""

    MEMORY_LIMIT = ("hami_gpu_memory_limit_bytes", "Memory of a GPU.", _DEVICE)
    CORE_LIMIT = ("hami_gpu_core_limit_ratio", "Compute of a GPU that may be promised, in percent.", _DEVICE)
    MEMORY_ALLOCATED = (
        "hami_gpu_memory_allocated_bytes",
        "Memory of a GPU that is claimed.",
        ("zone", "node", "device_uuid", "device_index", "device_cores", "device_type"),
    )
    SHARED_COUNT = ("hami_gpu_shared_count", "Pods that share a GPU.", _DEVICE)
    CORE_ALLOCATED = (
        "hami_gpu_core_allocated_ratio",
        "Compute of a GPU that is claimed, in percent.",
        _DEVICE,
    )
    OVERVIEW = (
        "hami_node_gpu_overview",
        "Memory of a GPU that is claimed, with what it has as labels.",
        ("zone", "node", "device_uuid", "device_index", "device_cores", "device_memory_limit", "device_type"),
    )
    MEMORY_RATIO = (
        "hami_node_gpu_memory_allocated_ratio",
        "Part of a GPU's memory that is claimed, from 0 to 1.",
        ("zone", "node", "device_uuid", "device_index"),
    )
    POD_MEMORY = ("hami_vgpu_memory_allocated_bytes", "Memory that a pod claimed on a GPU.", _POD)
    POD_CORES = ("hami_vgpu_core_allocated_ratio", "Compute that a pod claimed on a GPU, in percent.", _POD)
    HOST_MEMORY = ("hami_host_gpu_memory_used_bytes", "Memory of a GPU that was seen in use.", _DEVICE)
    HOST_UTILIZATION = ("hami_host_gpu_utilization_ratio", "How busy a GPU was seen, in percent.", _DEVICE)

    @property
    def metric(self) -> str:
        """The name Prometheus knows it by."""
        name: str = self.value[0]
        return name


class Sample(msgspec.Struct, frozen=True):
    """One figure: of which metric, with which label values."""

    gauge: Gauge | HamiGauge
    value: float
    labels: tuple[str, ...] = ()


ONE_BY_ONE = frozenset({Gauge.GPU_MIB, Gauge.OBSERVATION_AGE, Gauge.POD_MIB})
"""A large cluster has hundreds of thousands of samples of these: they are written as they come."""
