"""OME's inference services: made, waited for, deleted. The names are those of the autotuner's controller.

A call that fails raises what went wrong instead of returning nothing; only `wait_for_ready` answers False,
and says why in `last_problem`.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from vramline.errors import RequestError, VramlineError
from vramline.inference.deployment import Deployer, Placement, ServiceOrder
from vramline.inference.discovery import ModelSource, read_model
from vramline.inference.estimate import Plan
from vramline.inference.gpu_cluster import find_cluster, read_gpu_cluster, run_now
from vramline.inference.parallelism import names_parallelism, required_gpus
from vramline.inference.reservation_client import ReservationClient
from vramline.inference.service_state import ServiceState, judge_pods, judge_service
from vramline.inference.waiting import Waiting
from vramline.kube.client import KubeClient, Patch, Selection
from vramline.kube.failures import ConflictError, NotFoundError
from vramline.kube.objects import NAMESPACES, Document, ObjectKey, Resource
from vramline.units import parse_vram
from vramline.wire import keys
from vramline.wire.ome_runtime import ServingRuntime, read_serving_runtime
from vramline.wire.ome_service import lay_over
from vramline.wire.ome_v1beta1 import (
    DeploymentMode,
    name_label,
    sanitize_dns_name,
    service_name,
    write_inference_service,
)

__all__ = ["OMEController", "Placement"]

T = TypeVar("T")


def _decode(raw: bytes | msgspec.Raw) -> Document:
    return msgspec.json.decode(raw, type=Document)


def _kind(kind: str, plural: str, *, namespaced: bool = False) -> Resource[Document]:
    return Resource(
        group=keys.OME_GROUP,
        version="v1beta1",
        kind=kind,
        plural=plural,
        namespaced=namespaced,
        decode=_decode,
    )


SERVICES = _kind("InferenceService", "inferenceservices", namespaced=True)
BASE_MODELS = _kind("ClusterBaseModel", "clusterbasemodels")
RUNTIMES = _kind("ClusterServingRuntime", "clusterservingruntimes")
_PODS: Resource[Document] = Resource(kind="Pod", plural="pods", namespaced=True, decode=_decode)


class OMEController:
    """Deploys inference services through OME on one cluster; `say` gets a line for whatever is done."""

    def __init__(
        self,
        kubeconfig_path: str | None = None,
        *,
        say: Callable[[str], object] = print,
        server: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        """`server` is a scheduler that holds memory for what is deployed; None: nobody does.

        One on another machine wants a token of somebody who may create pods in the service's namespace.
        """
        self.kubeconfig_path = kubeconfig_path
        self._say = say
        self._desk = (
            None if server is None else ReservationClient(server, token_file=token_file, ca_file=ca_file)
        )
        self.last_problem = ""
        """Why the last `wait_for_ready` answered False."""
        self._target = find_cluster(kubeconfig_path)

    sanitize_dns_name = staticmethod(sanitize_dns_name)

    def deploy_inference_service(  # noqa: PLR0913, PLR0917 — the first eight are the original's, the rest by name
        self,
        task_name: str,
        experiment_id: str,
        namespace: str,
        model_name: str,
        runtime_name: str,
        parameters: Mapping[str, object],
        storage: Mapping[str, str] | None = None,
        enable_gpu_selection: bool = True,  # noqa: FBT001, FBT002 — the original's order
        *,
        gpu_memory: int | str | None = None,
        model: ModelSource | None = None,
        plan: Plan | None = None,
        placement: str = "soft",
        mode: str | None = None,
        workers: int = 0,
        dry_run: bool = False,
        wait: bool = False,
    ) -> str | None:
        """Make the service and return its name; with `dry_run` nothing is written.

        What it claims is `gpu_memory`, or what an estimate says of `model` under `plan`; the engine is told
        to keep to it. With `wait`, None is returned for a service that does not get ready. An object of the
        same name is an error: what runs is never changed by accident.
        """
        order = ServiceOrder(
            name=service_name(task_name, str(experiment_id)),
            namespace=namespace,
            model=sanitize_dns_name(model_name.rpartition("/")[2]),
            runtime=runtime_name,
            gpus=required_gpus(parameters) if names_parallelism(parameters) else None,
            placement=_read_placement(placement) if enable_gpu_selection else None,
            mode=None if mode is None else _read_mode(mode),
            workers=workers,
            gpu_memory=None if gpu_memory is None else _read_mib(gpu_memory),
            served=None if model is None else read_model(model),
            plan=plan or Plan(),
            labels={
                keys.OME_TASK_LABEL: name_label(task_name),
                keys.OME_EXPERIMENT_LABEL: name_label(str(experiment_id)),
            },
            storage=dict(storage or {}),
        )
        self.deploy(order, dry_run=dry_run)
        if wait and not dry_run and not self.wait_for_ready(order.name, namespace):
            return None
        return order.name

    def deploy(self, order: ServiceOrder, *, dry_run: bool = False) -> Document:
        """Prepare a service and make it; return the object. With `dry_run` nothing is written or reserved."""
        deployer = Deployer(
            read_cluster=lambda: read_gpu_cluster(self.kubeconfig_path),
            runtime=self._find_runtime(order.runtime),
            desk=None if dry_run else self._desk,
            say=self._say,
        )
        prepared = deployer.prepare(order)
        document = lay_over(order.written, write_inference_service(prepared.wish))
        if dry_run:
            return document
        try:
            self.create_namespace(order.namespace)
            self._call(lambda client: client.create(SERVICES, document, namespace=order.namespace))
        except VramlineError:
            deployer.release(prepared)
            raise
        where = "" if prepared.wish.node is None else f" on node '{prepared.wish.node.name}'"
        self._say(f"Created InferenceService '{order.name}' in namespace '{order.namespace}'{where}")
        return document

    def _find_runtime(self, name: str) -> ServingRuntime | None:
        """Return a runtime of the cluster; None: there is none of this name, which OME will say too."""
        if not name:
            return None
        try:
            found = self._call(lambda client: client.get(RUNTIMES, ObjectKey(name))).value
        except NotFoundError:
            return None
        return read_serving_runtime(found)

    def wait_for_ready(
        self,
        isvc_name: str,
        namespace: str,
        timeout: float = 600,
        poll_interval: float = 10,
        *,
        on_change: Callable[[ServiceState], object] | None = None,
    ) -> bool:
        """Wait until the service is ready; False: it is not or never will be, and `last_problem` says why.

        Images that cannot be pulled, containers that crash or run out of memory and pods that stay
        unschedulable for a while end the wait. `on_change` is told whenever it is seen at another point of
        its way.
        """
        waiting = Waiting(timeout_s=timeout, clock=time.monotonic)
        while True:
            state, changed = waiting.look(self._state_of(isvc_name, namespace))
            if changed and on_change is not None:
                on_change(state)
            verdict = waiting.verdict(state, next_look_s=poll_interval)
            if verdict is not None:
                self.last_problem = verdict
                return state.ready
            time.sleep(poll_interval)

    def delete_inference_service(self, isvc_name: str, namespace: str) -> bool:
        """Delete a service; True also where it is gone already."""
        key = ObjectKey(isvc_name, namespace)
        try:
            self._call(lambda client: client.delete(SERVICES, key))
        except NotFoundError:
            return True
        return True

    def get_service_url(self, isvc_name: str, namespace: str) -> str | None:
        """Return the address that OME gave the service; None: none yet."""
        found = self._call(lambda client: client.get(SERVICES, ObjectKey(isvc_name, namespace))).value
        status = found.get("status")
        url = status.get("url") if isinstance(status, dict) else None
        return url if isinstance(url, str) else None

    def create_namespace(self, name: str) -> bool:
        """Make a namespace where there is none."""
        document: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        try:
            self._call(lambda client: client.create(NAMESPACES, document))
        except ConflictError as error:
            if not error.already_exists:
                raise
        return True

    def ensure_clusterbasemodel(
        self,
        name: str,
        spec: Mapping[str, Any],
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a cluster's model, or bring the one of this name in line."""
        return self._ensure(BASE_MODELS, name, spec, (labels, annotations))

    def ensure_clusterservingruntime(
        self,
        name: str,
        spec: Mapping[str, Any],
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a cluster's runtime, or bring the one of this name in line."""
        return self._ensure(RUNTIMES, name, spec, (labels, annotations))

    def list_clusterbasemodels(self) -> list[Document]:
        """Return every model of the cluster."""
        return [each.value for each in self._call(lambda client: client.list(BASE_MODELS)).items]

    def list_clusterservingruntimes(self) -> list[Document]:
        """Return every runtime of the cluster."""
        return [each.value for each in self._call(lambda client: client.list(RUNTIMES)).items]

    def _ensure(
        self,
        kind: Resource[Document],
        name: str,
        spec: Mapping[str, Any],
        marks: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
    ) -> bool:
        labels, annotations = (dict(mark or {}) for mark in marks)
        wanted: Document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": dict(spec),
        }
        try:
            self._call(lambda client: client.create(kind, wanted))
        except ConflictError as error:
            if not error.already_exists:
                raise
            change = Patch({key: wanted[key] for key in ("metadata", "spec")})
            self._call(lambda client: client.patch(kind, ObjectKey(name), change))
        return True

    def _state_of(self, name: str, namespace: str) -> ServiceState:
        async def look(client: KubeClient) -> tuple[Document, list[Document]]:
            service = await client.get(SERVICES, ObjectKey(name, namespace))
            mine = Selection(namespace=namespace, labels=f"{keys.OME_SERVICE_LABEL}={name}")
            pods = await client.list(_PODS, mine)
            return service.value, [pod.value for pod in pods.items]

        service, pods = self._call(look)
        return judge_service(service, judge_pods(pods))

    def _call(self, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        """Run one piece of work with a client of its own."""

        async def run() -> T:
            async with KubeClient(self._target, rng=random.Random()) as client:  # noqa: S311 — jitter
                return await work(client)

        return run_now(run())


def _read_mode(name: str) -> DeploymentMode:
    try:
        return DeploymentMode(name)
    except ValueError:
        raise _unknown("mode", name, ", ".join(DeploymentMode)) from None


def _read_placement(name: str) -> Placement:
    try:
        return Placement(name)
    except ValueError:
        raise _unknown("placement", name, ", ".join(Placement)) from None


def _read_mib(value: int | str) -> int:
    try:
        return parse_vram(str(value))
    except ValueError:
        raise _unknown("gpu_memory", str(value), "20480, 20480Mi or 20Gi") from None


def _unknown(field: str, value: str, accepted: str) -> RequestError:
    return RequestError(
        subject="deploy_inference_service",
        field=field,
        value=value,
        problem="is not understood",
        accepted=accepted,
    )
