"""OME's InferenceService: written so that placement stands where OME reads it, and read for its state.

RawDeployment and Serverless take affinity and scheduler from `spec.engine`. MultiNode takes them from leader
and worker only, and what stands in `spec.engine` would stop OME's own affinity there.
"""

import enum
import hashlib
import re
from collections.abc import Mapping

import msgspec

from vramline.errors import RequestError
from vramline.wire import keys

__all__ = [
    "ChosenNode",
    "DeploymentMode",
    "ServiceWish",
    "model_ready_label",
    "name_label",
    "sanitize_dns_name",
    "service_name",
    "write_inference_service",
]

Document = dict[str, object]

_LONGEST_SERVICE = 50
"""OME makes `<service>-engine-<hash>-<pod>` of it, and label values end at 63."""
_LONGEST_LABEL = 63
_LONGEST_DNS_NAME = 253
_LONGEST_MODEL = 32
_STORAGE = {
    "type": "storage-type",
    "pvc_name": "pvc-name",
    "pvc_subpath": "pvc-subpath",
    "mount_path": "mount-path",
}


class DeploymentMode(enum.StrEnum):
    """How OME makes pods of a service."""

    RAW = "RawDeployment"
    SERVERLESS = "Serverless"
    MULTI_NODE = "MultiNode"


class ChosenNode(msgspec.Struct, frozen=True):
    """A node for a service: its name, and the value of its hostname label (empty: it has none)."""

    name: str
    hostname: str
    pinned: bool
    """Whether the service may go nowhere else."""


class ServiceWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a service is to be."""

    name: str
    namespace: str
    model: str
    runtime: str
    """Empty: OME chooses one."""
    gpus: int
    """Of all its pods together."""
    mode: DeploymentMode = DeploymentMode.RAW
    workers: int = 0
    """MultiNode: pods besides the leader."""
    labels: dict[str, str] = {}
    storage: dict[str, str] = {}
    node: ChosenNode | None = None
    scheduler: str = ""
    """Empty: the cluster's own."""
    pod_annotations: dict[str, str] = {}
    args: tuple[str, ...] = ()
    """All arguments of the engine behind its runtime's command; empty: the runtime's own."""
    worker_args: tuple[str, ...] = ()
    """MultiNode: the same for the pods besides the leader."""


def sanitize_dns_name(name: str, longest: int = _LONGEST_DNS_NAME) -> str:
    """Return a name that Kubernetes and OME accept: lower case, digits and hyphens, a letter first.

    >>> sanitize_dns_name("My Task_1"), sanitize_dns_name("3rd"), sanitize_dns_name("--")
    ('my-task-1', 'task-3rd', 'task')
    """
    text = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    if not text or not text[0].isalpha():
        text = f"task-{text}".rstrip("-")
    if len(text) <= longest:
        return text
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{text[: longest - 9].rstrip('-')}-{mark}"


def service_name(task: str, experiment: str) -> str:
    """Return the name of a task's experiment; long ones are cut, and stay different from each other.

    >>> service_name("my-task", "1")
    'my-task-exp1'
    """
    end = sanitize_dns_name(f"exp{experiment}", 20)
    return f"{sanitize_dns_name(task, _LONGEST_SERVICE - len(end) - 1)}-{end}"


def name_label(text: str) -> str:
    """Return a text as the value of a label."""
    value = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:_LONGEST_LABEL]
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", value)


def model_ready_label(model: str) -> str:
    """Return the node label that OME's agent sets to `Ready` where a cluster's model is; long names are cut.

    >>> model_ready_label("llama-3-1-8b-instruct")
    'models.ome.io/clusterbasemodel.llama-3-1-8b-instruct'
    """
    if len(model) > _LONGEST_MODEL:
        model = f"{hashlib.sha256(model.encode()).hexdigest()[:8]}-{model[-23:]}"
    return f"{keys.OME_MODEL_READY_PREFIX}{model}"


def write_inference_service(wish: ServiceWish) -> Document:
    """Return the whole object; raises `RequestError` for a wish that OME cannot carry out."""
    metadata: Document = {"name": wish.name, "namespace": wish.namespace}
    if wish.labels:
        metadata["labels"] = dict(wish.labels)
    annotations = {
        f"{keys.OME_STORAGE_PREFIX}{_STORAGE[key]}": value for key, value in _storage(wish).items()
    }
    if annotations:
        metadata["annotations"] = annotations
    spec: Document = {"model": {"name": wish.model}, "engine": _engine(wish)}
    if wish.runtime:
        runtime = {"name": wish.runtime, "kind": "ClusterServingRuntime", "apiGroup": keys.OME_GROUP}
        spec["runtime"] = runtime
    return {
        "apiVersion": f"{keys.OME_GROUP}/v1beta1",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": spec,
    }


def _storage(wish: ServiceWish) -> Mapping[str, str]:
    unknown = sorted(wish.storage.keys() - _STORAGE.keys())
    if unknown:
        raise RequestError(
            subject=f"InferenceService {wish.name}",
            field="storage",
            value=unknown[0],
            problem="is not understood",
            accepted=", ".join(_STORAGE),
        )
    return wish.storage


def _engine(wish: ServiceWish) -> Document:
    engine: Document = {"minReplicas": 1, "maxReplicas": 1}
    if wish.pod_annotations:
        engine["annotations"] = dict(wish.pod_annotations)
    match wish.mode:
        case DeploymentMode.RAW:
            # One copy at a time: a second one beside the first may not fit, and would wait for ever.
            update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
            return {**engine, **_pod(wish, wish.gpus, wish.args), "deploymentStrategy": update}
        case DeploymentMode.SERVERLESS:
            if wish.scheduler:
                raise _impossible(
                    wish, "mode", wish.mode, "takes no schedulerName", "RawDeployment, MultiNode"
                )
            return {**engine, **_pod(wish, wish.gpus, wish.args), "minReplicas": 0}
        case DeploymentMode.MULTI_NODE:
            pods = wish.workers + 1
            if wish.workers < 1 or wish.gpus % pods:
                problem = f"{wish.gpus} GPUs cannot be dealt out to {pods} pods"
                raise _impossible(wish, "workers", wish.workers, problem, "1 or more, and equal parts")
            if wish.node is not None and wish.node.pinned:
                raise _impossible(
                    wish, "placement", "pin", "several pods are not one node's", "soft, scheduler"
                )
            leader = _pod(wish, wish.gpus // pods, wish.args)
            worker = _pod(wish, wish.gpus // pods, wish.worker_args)
            return {**engine, "leader": leader, "worker": {**worker, "size": wish.workers}}


def _pod(wish: ServiceWish, gpus: int, args: tuple[str, ...]) -> Document:
    amount = {keys.GPU_COUNT: str(gpus)}
    runner: Document = {"name": "ome-container", "resources": {"limits": amount, "requests": dict(amount)}}
    if args:
        runner["args"] = list(args)
    pod: Document = {"runner": runner}
    if wish.scheduler:
        pod["schedulerName"] = wish.scheduler
    if wish.node is not None:
        pod["affinity"] = {"nodeAffinity": _affinity(wish.node)}
    return pod


def _affinity(node: ChosenNode) -> Document:
    """The node's own label value, which need not be its name; without the label, its name as a field."""
    if node.hostname:
        term: Document = {
            "matchExpressions": [{"key": keys.HOSTNAME, "operator": "In", "values": [node.hostname]}]
        }
    else:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
    if node.pinned:
        return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}


def _impossible(wish: ServiceWish, field: str, value: object, problem: str, accepted: str) -> RequestError:
    return RequestError(
        subject=f"InferenceService {wish.name}", field=field, value=value, problem=problem, accepted=accepted
    )
