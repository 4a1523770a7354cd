"""`GpuReport`: what a node's agent says of its cards.

A field that the card did not answer is absent, never 0. `processes` absent: not available; `podUID` null:
nobody's; `podUID` absent: not attributed.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vramline.errors import RequestError
from vramline.model.gpu import Health
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation
from vramline.units import MAX_MIB, Mib
from vramline.wire.decoding import convert_document
from vramline.wire.own_objects import API_VERSION, OwnMeta, check_version
from vramline.wire.times import Timestamp, format_time, seconds_of

__all__ = ["GpuReport", "ReportedGpu", "ReportedProcess", "decode_report", "encode_report", "observe"]

KIND = "GpuReport"

_Amount = Annotated[int, Meta(ge=0, le=MAX_MIB)]
_Words = Annotated[str, Meta(min_length=1, max_length=253)]
_FORMS = {"health": ", ".join(Health)}


class ReportedProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process on a card."""

    pid: Annotated[int, Meta(ge=0, le=2**31)]
    used_mib: _Amount | None = msgspec.field(name="usedMiB", default=None)
    pod_uid: _Words | UnsetType | None = msgspec.field(name="podUID", default=UNSET)


class ReportedGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One card of a report."""

    total_mib: Annotated[int, Meta(ge=1, le=MAX_MIB)] = msgspec.field(name="totalMiB")
    uuid: _Words | None = None
    index: Annotated[int, Meta(ge=0, le=1023)] | None = None
    model: str | None = None
    reserved_mib: _Amount | None = msgspec.field(name="reservedMiB", default=None)
    used_mib: _Amount | None = msgspec.field(name="usedMiB", default=None)
    utilization_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    temperature_c: Annotated[int, Meta(ge=-273, le=1000)] | None = None
    health: Health | None = None
    replicas: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    unified: bool | None = None
    numa: Annotated[int, Meta(ge=0, le=1023)] | None = None
    mig: bool | None = None
    processes: tuple[ReportedProcess, ...] | None = None


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from, or will be written to, one report object."""

    node: str
    observed_at: float | None = None
    """Seconds since the epoch; None: the report does not say, so that nothing in it counts as observed."""
    platform: str = ""
    gpus: tuple[ReportedGpu, ...] | None = None
    """None: the agent has not looked yet."""


class _Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    observed_at: Timestamp | None = None
    platform: str | None = None
    gpus: tuple[ReportedGpu, ...] | None = None


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: str
    metadata: OwnMeta
    status: _Status | None = None


def decode_report(document: object, *, subject: str = KIND) -> GpuReport:
    """Read a report as a YAML or JSON parser returned it."""
    read = convert_document(document, _Document, subject=subject, forms=_FORMS)
    check_version(read.api_version, subject=subject)
    status = read.status or _Status()
    for position, gpu in enumerate(status.gpus or ()):
        if gpu.reserved_mib is not None and gpu.reserved_mib >= gpu.total_mib:
            raise RequestError(
                subject=subject,
                field=f"status.gpus[{position}].reservedMiB",
                value=gpu.reserved_mib,
                problem=f"leaves nothing of totalMiB, which is {gpu.total_mib}",
                accepted="less than totalMiB",
            )
    return GpuReport(
        node=read.metadata.name,
        observed_at=None if status.observed_at is None else seconds_of(status.observed_at),
        platform=status.platform or "",
        gpus=status.gpus,
    )


def encode_report(report: GpuReport) -> dict[str, object]:
    """Write a report as plain mappings and lists, ready for JSON or YAML."""
    status: dict[str, object] = {}
    if report.observed_at is not None:
        status["observedAt"] = format_time(report.observed_at)
    if report.platform:
        status["platform"] = report.platform
    if report.gpus is not None:
        status["gpus"] = msgspec.to_builtins(list(report.gpus))
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": report.node}, "status": status}


def observe(gpu: ReportedGpu, at: float) -> Observation:
    """Return what the report saw on one card."""
    listed = gpu.processes
    return Observation(
        at=at,
        used=NOT_REPORTED if gpu.used_mib is None else Mib(gpu.used_mib),
        processes=NOT_REPORTED if listed is None else tuple(_observe_process(each) for each in listed),
        utilization_percent=NOT_REPORTED if gpu.utilization_percent is None else gpu.utilization_percent,
        temperature_c=NOT_REPORTED if gpu.temperature_c is None else gpu.temperature_c,
    )


def _observe_process(process: ReportedProcess) -> GpuProcess:
    return GpuProcess(
        pid=process.pid,
        used=NOT_REPORTED if process.used_mib is None else Mib(process.used_mib),
        pod_uid=NOT_REPORTED if isinstance(process.pod_uid, UnsetType) else process.pod_uid,
    )
