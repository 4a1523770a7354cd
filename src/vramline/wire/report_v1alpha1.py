"""`GpuReport`: what a node's agent says of its cards.

A field that the card did not answer is absent, never 0. `processes` absent: not available; `podUID` null:
nobody's; `podUID` absent: not attributed.
"""

import enum
import math
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vramline.errors import RequestError
from vramline.model.gpu import Health
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation, ObservationSource
from vramline.units import MAX_MIB, Mib
from vramline.wire.decoding import convert_document
from vramline.wire.own_objects import API_VERSION, OwnMeta, check_version
from vramline.wire.times import Timestamp, moment_of, seconds_of

__all__ = [
    "GpuReport",
    "NodeCheck",
    "ReportDocument",
    "ReportStatus",
    "ReportedGpu",
    "ReportedProcess",
    "decode_report",
    "encode_report",
    "observe",
    "report_in",
    "report_of",
    "status_of",
]

KIND = "GpuReport"

_Amount = Annotated[int, Meta(ge=0, le=MAX_MIB)]
_Words = Annotated[str, Meta(min_length=1, max_length=253)]
_Note = Annotated[str, Meta(max_length=1024)]


class NodeCheck(enum.StrEnum):
    """The real-time check as a node's own environment sets it."""

    STRICT = "strict"
    WARNING = "warning"
    DISABLED = "disabled"
    ENABLED = "enabled"
    """The mode otherwise in force, or strict if that is disabled."""


_FORMS = {"health": ", ".join(Health), "realtimeCheck": ", ".join(NodeCheck)}


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
    link_group: Annotated[int, Meta(ge=0, le=1023)] | None = None
    """Cards with the same number reach each other over NVLink."""
    mig: bool | None = None
    processes: tuple[ReportedProcess, ...] | None = None
    memory_source: Annotated[str, Meta(max_length=63)] | None = None
    """Where total and used were read from, such as `nvml` or `meminfo`."""
    note: _Note | None = None
    """Why fields are absent or the health is what it is, in words."""


class GpuReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from, or will be written to, one report object."""

    node: str
    observed_at: float | None = None
    """Seconds since the epoch; None: the report does not say, so that nothing in it counts as observed."""
    platform: str = ""
    gpus: tuple[ReportedGpu, ...] | None = None
    """None: the agent has not looked yet."""
    realtime_check: NodeCheck | None = None
    """The node's own mode; None: its environment does not say."""
    notes: tuple[str, ...] = ()
    """What went wrong on the node beside its cards, in words."""


class ReportStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The status of a report as it stands on the wire, in the object and in the agents' stream alike."""

    observed_at: Timestamp | None = None
    platform: str | None = None
    gpus: tuple[ReportedGpu, ...] | None = None
    realtime_check: NodeCheck | None = None
    notes: tuple[_Note, ...] | None = None


class ReportDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A report object as it stands on the wire."""

    api_version: str
    kind: str
    metadata: OwnMeta
    status: ReportStatus | None = None


def decode_report(document: object, *, subject: str = KIND) -> GpuReport:
    """Read a report as a YAML or JSON parser returned it."""
    return report_in(convert_document(document, ReportDocument, subject=subject, forms=_FORMS), subject)


def report_in(document: ReportDocument, subject: str = KIND) -> GpuReport:
    """Return the report that an object holds; raises `RequestError` where it makes no sense."""
    check_version(document.api_version, subject=subject)
    return report_of(document.status or ReportStatus(), node=document.metadata.name, subject=subject)


def report_of(status: ReportStatus, *, node: str, subject: str = KIND) -> GpuReport:
    """Return the report of a node whose status was read; raises `RequestError` where it makes no sense."""
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
        node=node,
        observed_at=None if status.observed_at is None else seconds_of(status.observed_at),
        platform=status.platform or "",
        gpus=status.gpus,
        realtime_check=status.realtime_check,
        notes=status.notes or (),
    )


def status_of(report: GpuReport) -> ReportStatus:
    """Return what is written of a report besides its node."""
    return ReportStatus(
        observed_at=None if report.observed_at is None else moment_of(report.observed_at),
        platform=report.platform or None,
        gpus=report.gpus,
        realtime_check=report.realtime_check,
        notes=report.notes or None,
    )


def encode_report(report: GpuReport) -> dict[str, object]:
    """Write a report as plain mappings and lists, ready for JSON or YAML."""
    status = msgspec.to_builtins(status_of(report))
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": report.node}, "status": status}


def observe(
    gpu: ReportedGpu,
    at: float,
    *,
    source: ObservationSource = ObservationSource.REPORT,
    void_at: float = math.inf,
) -> Observation:
    """Return what the report saw on one card."""
    used, listed, busy, warm = gpu.used_mib, gpu.processes, gpu.utilization_percent, gpu.temperature_c
    processes = tuple([_observe_process(each) for each in listed]) if listed else ()
    return Observation(
        at=at,
        used=NOT_REPORTED if used is None else Mib(used),
        processes=NOT_REPORTED if listed is None else processes,
        utilization_percent=NOT_REPORTED if busy is None else busy,
        temperature_c=NOT_REPORTED if warm is None else warm,
        source=source,
        void_at=void_at,
    )


def _observe_process(process: ReportedProcess) -> GpuProcess:
    used, pod_uid = process.used_mib, process.pod_uid
    return GpuProcess(
        pid=process.pid,
        used=NOT_REPORTED if used is None else Mib(used),
        pod_uid=NOT_REPORTED if isinstance(pod_uid, UnsetType) else pod_uid,
    )
