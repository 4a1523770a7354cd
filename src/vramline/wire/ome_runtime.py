"""OME's ClusterServingRuntime, as far as placing a service of it needs: what its pods ask for and run."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vramline.errors import RequestError
from vramline.model.pod import HostNeeds
from vramline.wire import keys
from vramline.wire.decoding import convert_document
from vramline.wire.host_needs import read_host_needs
from vramline.wire.kubernetes import Container, PodSpec
from vramline.wire.quantities import read_whole

__all__ = ["RuntimePod", "ServingRuntime", "read_serving_runtime"]

_ENGINES = ("vllm", "sglang")
_SHELLS = ("sh", "bash", "ash", "dash")


class _Runner(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    resources: dict[str, Any] | None = None


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    runner: _Runner | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None
    affinity: dict[str, Any] | None = None
    size: Annotated[int, Meta(ge=1, le=1024)] | None = None


class _Engine(_Part, frozen=True, kw_only=True, rename="camel"):
    leader: _Part | None = None
    worker: _Part | None = None


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    disabled: bool | None = None
    engine_config: _Engine | None = None


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    spec: _Spec


class RuntimePod(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of pod that a runtime makes."""

    gpus: int
    """0: it does not say."""
    host: HostNeeds
    command: tuple[str, ...]
    args: tuple[str, ...]

    @property
    def engine(self) -> str:
        """The server that it runs, `vllm` or `sglang`; empty: nobody knows."""
        words = " ".join((*self.command, *self.args)).lower()
        return next((name for name in _ENGINES if name in words), "")

    @property
    def takes_flags(self) -> bool:
        """Whether a flag behind its arguments reaches the server: not so where a shell takes them."""
        program = self.command[0].rpartition("/")[2] if self.command else ""
        return bool(self.engine) and program not in _SHELLS


class ServingRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime makes of a service."""

    name: str
    disabled: bool
    pod: RuntimePod
    """The pod of a service on one node, or the leader."""
    worker: RuntimePod | None = None
    """The pods beside a leader; None: the service is one pod."""
    workers: int = 0


def read_serving_runtime(document: object) -> ServingRuntime:
    """Read a ClusterServingRuntime or ServingRuntime; raises `RequestError` by the field that is wrong."""
    read = convert_document(document, _Document, subject="ClusterServingRuntime")
    subject = f"ClusterServingRuntime {read.metadata.name}"
    engine = read.spec.engine_config
    if engine is None or (engine.runner is None and engine.leader is None):
        raise RequestError(
            subject=subject,
            field="spec.engineConfig",
            problem="has neither runner nor leader: there is nothing that would serve a model",
            accepted="a runner, or a leader and a worker",
        )
    several = engine.leader is not None and engine.worker is not None
    return ServingRuntime(
        name=read.metadata.name,
        disabled=bool(read.spec.disabled),
        pod=_read_pod(engine.leader if engine.leader is not None else engine, engine, subject),
        worker=_read_pod(engine.worker, engine, subject) if several and engine.worker else None,
        workers=(engine.worker.size or 1) if several and engine.worker else 0,
    )


def _read_pod(part: _Part, engine: _Engine, subject: str) -> RuntimePod:
    """Read one kind of pod; selectors of the engine reach leader and worker too."""
    runner = part.runner or _Runner()
    container = {"name": runner.name or "ome-container", "resources": runner.resources}
    spec = convert_document(
        {
            "containers": [container],
            "nodeSelector": {**(engine.node_selector or {}), **(part.node_selector or {})},
            "tolerations": part.tolerations,
            "affinity": part.affinity,
        },
        PodSpec,
        subject=subject,
        root="spec.engineConfig",
    )
    return RuntimePod(
        gpus=_gpus_of((spec.containers or [Container(name="")])[0], subject),
        host=read_host_needs(spec, subject),
        command=tuple(runner.command or ()),
        args=tuple(runner.args or ()),
    )


def _gpus_of(container: Container, subject: str) -> int:
    needs = container.resources
    for amounts in (needs.limits, needs.requests) if needs is not None else ():
        for key in (keys.GPU_COUNT, keys.GPU_COUNT_SHARED):
            if key in (amounts or {}):
                return read_whole((amounts or {})[key], subject=subject, field=key, low=0, high=1024)
    return 0
