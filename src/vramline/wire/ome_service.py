"""OME's InferenceService as somebody wrote it: what it serves, and how its placement is laid over it."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vramline.errors import RequestError
from vramline.wire import keys
from vramline.wire.decoding import convert_document
from vramline.wire.ome_v1beta1 import DeploymentMode

__all__ = ["ServiceManifest", "lay_over", "read_inference_service"]

_KIND = "InferenceService"
_Count = Annotated[int, Meta(ge=0, le=10_000)]


class _Reference(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None


class _Worker(msgspec.Struct, frozen=True, kw_only=True):
    size: _Count | None = None


class _Engine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    min_replicas: _Count | None = None
    annotations: dict[str, str] | None = None
    leader: dict[str, Any] | None = None
    worker: _Worker | None = None


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    model: _Reference | None = None
    runtime: _Reference | None = None
    engine: _Engine | None = None


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str | None = None
    annotations: dict[str, str] | None = None


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    metadata: _Meta
    spec: _Spec


class ServiceManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a written service says of itself; an empty name: it does not say."""

    name: str
    namespace: str
    model: str
    runtime: str
    mode: DeploymentMode | None
    workers: int
    copies: int
    """How many of it run at least."""
    document: dict[str, Any]


def read_inference_service(document: Mapping[str, Any]) -> ServiceManifest:
    """Read a service; raises `RequestError` by the field that OME would refuse."""
    read = convert_document(document, _Document, subject=_KIND)
    subject = f"{_KIND} {read.metadata.name}"
    group, _, version = read.api_version.partition("/")
    if (group, version, read.kind) != (keys.OME_GROUP, "v1beta1", _KIND):
        raise RequestError(
            subject=subject,
            field="apiVersion, kind",
            value=f"{read.api_version} {read.kind}",
            problem="is not a service of OME",
            accepted=f"{keys.OME_GROUP}/v1beta1 {_KIND}",
        )
    for field, reference in (("model", read.spec.model), ("runtime", read.spec.runtime)):
        if reference is not None and not reference.name:
            raise RequestError(
                subject=subject,
                field=f"spec.{field}.name",
                problem="is missing",
                accepted=f"the name of a {field}, or no spec.{field} at all",
            )
    engine = read.spec.engine or _Engine()
    return ServiceManifest(
        name=read.metadata.name,
        namespace=read.metadata.namespace or "",
        model=(read.spec.model or _Reference()).name or "",
        runtime=(read.spec.runtime or _Reference()).name or "",
        mode=_mode_of(read.metadata, engine, subject),
        workers=0 if engine.worker is None else engine.worker.size or 1,
        copies=max(engine.min_replicas or 1, 1),
        document=dict(document),
    )


def lay_over(manifest: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what somebody wrote with our part laid over it: maps are merged, all else is ours.

    How many copies run is the author's affair.
    """
    merged = dict(manifest)
    for key, value in written.items():
        known = merged.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            merged[key] = lay_over(known, value)
        elif key not in {"minReplicas", "maxReplicas"} or known is None:
            merged[key] = value
    return merged


def _mode_of(meta: _Meta, engine: _Engine, subject: str) -> DeploymentMode | None:
    """Return the mode that OME would derive; None: that of the runtime."""
    told = (engine.annotations or {}).get(keys.OME_DEPLOYMENT_MODE) or (meta.annotations or {}).get(
        keys.OME_DEPLOYMENT_MODE
    )
    if told is not None:
        try:
            return DeploymentMode(told)
        except ValueError:
            raise RequestError(
                subject=subject,
                field=f"annotation {keys.OME_DEPLOYMENT_MODE}",
                value=told,
                problem="is a mode that cannot be placed here",
                accepted=", ".join(DeploymentMode),
            ) from None
    if engine.leader is not None or engine.worker is not None:
        return DeploymentMode.MULTI_NODE
    return DeploymentMode.SERVERLESS if engine.min_replicas == 0 else None
