"""Every annotation, label and resource key that Vramline reads or writes, spelled once, here."""

__all__ = [
    "ALLOCATION",
    "ARCHITECTURE",
    "ASK",
    "CONDITION_PLACED",
    "CONDITION_PREEMPTOR",
    "FREED",
    "GFD_COUNT",
    "GFD_MACHINE",
    "GFD_MEMORY",
    "GFD_MIG_STRATEGY",
    "GFD_PRODUCT",
    "GFD_REPLICAS",
    "GFD_SHARING_STRATEGY",
    "GPUS",
    "GPUS_PHYSICAL",
    "GPU_CORES",
    "GPU_COUNT",
    "GPU_COUNT_SHARED",
    "GPU_MEMORY_MIB",
    "GPU_MEMORY_PERCENT",
    "GPU_PRIORITY",
    "GROUP",
    "HAMI_ALLOCATED",
    "HAMI_BIND_PHASE",
    "HAMI_BIND_TIME",
    "HAMI_CORDON",
    "HAMI_ENABLE_REALTIME",
    "HAMI_GPU_POLICY",
    "HAMI_LOCK",
    "HAMI_NODE",
    "HAMI_NODE_POLICY",
    "HAMI_NOUSE_TYPE",
    "HAMI_NOUSE_UUID",
    "HAMI_NUMA_BIND",
    "HAMI_REGISTER",
    "HAMI_SCORING_WEIGHTS",
    "HAMI_TIME",
    "HAMI_TO_ALLOCATE",
    "HAMI_USE_TYPE",
    "HAMI_USE_UUID",
    "HAMI_VGPU_MODE",
    "HOSTNAME",
    "INITIAL_EVENTS_END",
    "KAI_APP_LABEL",
    "KAI_CONTAINER_PREFIX",
    "KAI_FRACTION",
    "KAI_FRACTION_CONTAINER",
    "KAI_FRACTION_DEVICES",
    "KAI_GROUP_LABEL",
    "KAI_LIMIT_SUFFIX",
    "KAI_MEMORY",
    "KAI_PORTION_ENV",
    "KAI_REQUEST_SUFFIX",
    "KAI_RESERVED_UUID",
    "MANAGED",
    "MIG_RESOURCE_PREFIX",
    "MIRROR",
    "OME_DEPLOYMENT_MODE",
    "OME_EXPERIMENT_LABEL",
    "OME_GROUP",
    "OME_MODEL_READY_PREFIX",
    "OME_SERVICE_LABEL",
    "OME_STORAGE_PREFIX",
    "OME_TASK_LABEL",
    "PLATFORM",
    "PORTION",
    "REALTIME_CHECK",
    "RESERVATION",
    "RESERVED_GPU",
    "RESERVES",
    "SIDE_DOORS",
    "SLOT",
    "VISIBLE_DEVICES",
    "VISIBLE_DEVICES_ENV",
    "VRAM",
]

# ── Vramline ─────────────────────────────────────────────────────────────────────────────────────────
GROUP = "vramline.io"
"""API group of our objects, and the domain of our annotations."""
VRAM = "vramline.io/vram"
"""Pod annotation: memory on each GPU."""
GPUS = "vramline.io/gpus"
"""Pod annotation: on how many GPUs."""
REALTIME_CHECK = "vramline.io/realtime-check"
"""Pod annotation: the pod's own mode of the real-time check."""
RESERVATION = "vramline.io/reservation"
"""Pod annotation: tokens of reservations, one of which the pod takes over when it is bound."""
ASK = "vramline.io/ask"
"""Pod annotation, sealed: the ask as it was before the webhook rewrote the limits."""
ALLOCATION = "vramline.io/allocation"
"""Pod annotation, sealed: node, GPUs and ledger version."""
CONDITION_PLACED = "vramline.io/Placed"
"""Type of a pod condition: False while the pod waits, with the reason and one line why."""
CONDITION_PREEMPTOR = "vramline.io/Preemptor"
"""Type of a pod condition: True for a pod for which others were sent away from the node in its reason."""
VISIBLE_DEVICES = "vramline.io/visible-devices"
"""Pod annotation, sealed: comma list of UUIDs that becomes `NVIDIA_VISIBLE_DEVICES`."""
MANAGED = "vramline.io/managed"
"""Resource that marks a pod as ours; its amount means nothing."""
SLOT = "vramline.io/gpu"
"""Resource that Vramline's own device plugin offers: a place for one pod, however much memory it asks for."""
GPUS_PHYSICAL = "vramline.io/gpus-physical"
"""Node annotation: the physical GPUs, where no label tells them."""
FREED = "vramline.io/freed"
"""Annotation of the scheduler's own CSIStorageCapacity: its change has refused pods tried again."""
PLATFORM = "vramline.io/platform"
"""Node label: the kind of machine, where it is not recognised or should count as another."""
PORTION = "vramline.io/gpu-portion"
"""Pod annotation, sealed: the share of a card, for containers that expect it in KAI's variable."""
RESERVED_GPU = "vramline.io/reserved-gpu"
"""Annotation of a reservation pod, written by itself: the UUID of the card that kubelet gave to it."""
RESERVES = "vramline.io/reserves"
"""Annotation of a reservation pod: the card for which it was made; kubelet may have given it another."""
SIDE_DOORS = "vramline.io/side-doors"
"""Namespace label: `closed` refuses every way to a GPU that goes round the scheduler."""

# ── NVIDIA and HAMi resources ────────────────────────────────────────────────────────────────────────
GPU_COUNT = "nvidia.com/gpu"
GPU_COUNT_SHARED = "nvidia.com/gpu.shared"
"""What the device plugin calls `nvidia.com/gpu` when it renames time-sliced devices."""
GPU_MEMORY_MIB = "nvidia.com/gpumem"
GPU_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"
GPU_CORES = "nvidia.com/gpucores"
GPU_PRIORITY = "nvidia.com/priority"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"
"""Environment variable by which the container runtime tells which cards a container sees."""

# ── KAI ──────────────────────────────────────────────────────────────────────────────────────────────
KAI_MEMORY = "gpu-memory"
KAI_FRACTION = "gpu-fraction"
KAI_FRACTION_DEVICES = "gpu-fraction-num-devices"
KAI_FRACTION_CONTAINER = "gpu-fraction-container-name"
KAI_CONTAINER_PREFIX = "nvidia.com/container."
"""Pod annotation: this, a container's name, and one of the two suffixes."""
KAI_REQUEST_SUFFIX = ".gpu-memory.request"
KAI_LIMIT_SUFFIX = ".gpu-memory.limit"
KAI_PORTION_ENV = "GPU_PORTION"
"""Environment variable: the share of a card that a container's pod has."""
KAI_GROUP_LABEL = "runai-gpu-group"
"""Pod label: the KAI group; for several devices `runai-gpu-group/<group>`, one label each."""
KAI_RESERVED_UUID = "run.ai/reserve_for_gpu_index"
"""Annotation of a reservation pod: the UUID (not the index) of the card it holds."""
KAI_APP_LABEL = "app"
"""Label whose value tells a reservation pod."""

# ── HAMi annotations ─────────────────────────────────────────────────────────────────────────────────
HAMI_USE_TYPE = "nvidia.com/use-gputype"
HAMI_NOUSE_TYPE = "nvidia.com/nouse-gputype"
HAMI_USE_UUID = "nvidia.com/use-gpuuuid"
HAMI_NOUSE_UUID = "nvidia.com/nouse-gpuuuid"
HAMI_NUMA_BIND = "nvidia.com/numa-bind"
HAMI_VGPU_MODE = "nvidia.com/vgpu-mode"
HAMI_NODE_POLICY = "hami.io/node-scheduler-policy"
HAMI_GPU_POLICY = "hami.io/gpu-scheduler-policy"
HAMI_SCORING_WEIGHTS = "hami.io/device-scoring-weights"
HAMI_ENABLE_REALTIME = "hami.io/enable-realtime-check"
HAMI_ALLOCATED = "hami.io/vgpu-devices-allocated"
"""Pod annotation: the devices of every container."""
HAMI_TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
"""Pod annotation: the same, for HAMi's device plugin, which erases what it has handed out."""
HAMI_NODE = "hami.io/vgpu-node"
"""Pod annotation: the node for which those were chosen."""
HAMI_TIME = "hami.io/vgpu-time"
"""Pod annotation: when they were chosen, in seconds since the epoch."""
HAMI_BIND_PHASE = "hami.io/bind-phase"
"""Pod annotation: `allocating` until HAMi's device plugin has handed the devices out."""
HAMI_BIND_TIME = "hami.io/bind-time"
"""Pod annotation: when the pod was bound, in seconds since the epoch."""
HAMI_LOCK = "hami.io/mutex.lock"
"""Node annotation: since when, and the pod for which HAMi has locked the node."""
HAMI_REGISTER = "hami.io/node-nvidia-register"
"""Node annotation: the cards, as JSON or in the older comma format."""
HAMI_CORDON = "hami.io/device-cordon"
"""Node annotation: comma list of UUIDs that get nothing new."""

# ── GPU-feature-discovery labels ─────────────────────────────────────────────────────────────────────
GFD_COUNT = "nvidia.com/gpu.count"
GFD_MACHINE = "nvidia.com/gpu.machine"
GFD_MEMORY = "nvidia.com/gpu.memory"
GFD_REPLICAS = "nvidia.com/gpu.replicas"
GFD_PRODUCT = "nvidia.com/gpu.product"
GFD_SHARING_STRATEGY = "nvidia.com/gpu.sharing-strategy"
GFD_MIG_STRATEGY = "nvidia.com/mig.strategy"

# ── Kubernetes ───────────────────────────────────────────────────────────────────────────────────────
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark after which a watch shows changes instead of what was there already."""
MIRROR = "kubernetes.io/config.mirror"
"""Pod annotation: kubelet's own picture of a static pod."""
ARCHITECTURE = "kubernetes.io/arch"
"""Node label: amd64, arm64."""
HOSTNAME = "kubernetes.io/hostname"
"""Node label; its value need not be the node's name."""

# ── OME ──────────────────────────────────────────────────────────────────────────────────────────────
OME_GROUP = "ome.io"
OME_DEPLOYMENT_MODE = "ome.io/deploymentMode"
"""Annotation: how a service becomes pods."""
OME_SERVICE_LABEL = "ome.io/inferenceservice"
"""Label of the pods of a service: its name."""
OME_MODEL_READY_PREFIX = "models.ome.io/clusterbasemodel."
"""Node label, with the model's name behind it: `Ready` where the model's files are on the node."""
OME_STORAGE_PREFIX = "ome.io/"
"""Annotations that name a model's volume: this, and storage-type, pvc-name, pvc-subpath or mount-path."""
OME_TASK_LABEL = "autotuner.io/task"
OME_EXPERIMENT_LABEL = "autotuner.io/experiment-id"
