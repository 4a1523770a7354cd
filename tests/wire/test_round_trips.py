"""decode(encode(x)) == x for every format that is written."""

import datetime as dt

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from vramline.model.claim import Claim
from vramline.model.gpu import Health
from vramline.model.pod import GpuShare
from vramline.units import MAX_MIB
from vramline.wire.allocation import AllocationRecord, decode_allocation, encode_allocation
from vramline.wire.bind_request_v1alpha1 import (
    BindPhase,
    BindRequest,
    decode_bind_request,
    encode_bind_request,
)
from vramline.wire.hami import (
    ContainerDevice,
    RegisteredGpu,
    decode_devices,
    decode_register,
    encode_devices,
    encode_register,
    encode_register_as_commas,
)
from vramline.wire.ledger_v1alpha1 import GpuLedger, decode_ledger, encode_ledger
from vramline.wire.report_v1alpha1 import (
    GpuReport,
    NodeCheck,
    ReportedGpu,
    ReportedProcess,
    decode_report,
    encode_report,
)
from vramline.wire.times import format_time, read_time, seconds_of

UUIDS = st.uuids().map(lambda uuid: f"GPU-{uuid}")
NAMES = st.text("abcxyz019-.", min_size=1, max_size=20)
MIB = st.integers(1, MAX_MIB)
CORES = st.integers(0, 100)
TIMES = st.datetimes(timezones=st.just(dt.UTC)).map(seconds_of)
WORDS = st.text(st.characters(exclude_characters=",:;[", exclude_categories=["Z", "C"]), max_size=20)

SHARES = st.lists(st.builds(GpuShare, UUIDS, MIB, CORES), min_size=1, max_size=8, unique_by=lambda s: s.uuid)


def through_json(document: object) -> object:
    """What comes back from the API server."""
    return msgspec.json.decode(msgspec.json.encode(document))


@given(TIMES)
def test_times(seconds: float) -> None:
    assert read_time(format_time(seconds), subject="x", field="y") == seconds


@given(st.builds(AllocationRecord, node=NAMES, gpus=SHARES.map(tuple), ledger_version=st.integers(0, 2**53)))
def test_allocation(record: AllocationRecord) -> None:
    assert decode_allocation(encode_allocation(record), subject="Pod") == record


DEVICES = st.builds(ContainerDevice, UUIDS, st.just("NVIDIA"), MIB, CORES)


@given(st.lists(st.lists(DEVICES, max_size=4).map(tuple), max_size=5).map(tuple))
def test_devices_of_hami(containers: tuple[tuple[ContainerDevice, ...], ...]) -> None:
    assert decode_devices(encode_devices(containers), subject="Pod") == containers


REGISTERED = st.builds(
    RegisteredGpu,
    id=UUIDS,
    index=st.integers(0, 1023),
    count=st.integers(0, 1000),
    devmem=MIB,
    devcore=st.integers(0, 1000),
    type=WORDS,
    numa=st.integers(-1, 8),
    mode=st.sampled_from(["", "hami-core", "mig", "mps"]),
    health=st.booleans(),
)


@given(st.lists(REGISTERED, max_size=8).map(tuple))
def test_register_of_hami(cards: tuple[RegisteredGpu, ...]) -> None:
    assert decode_register(encode_register(cards), subject="Node") == cards


@given(st.lists(REGISTERED, min_size=1, max_size=8).map(tuple))
def test_register_of_hami_with_commas(cards: tuple[RegisteredGpu, ...]) -> None:
    assert decode_register(encode_register_as_commas(cards), subject="Node") == cards


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


AMOUNTS = st.integers(0, MAX_MIB)
PROCESSES = st.builds(
    ReportedProcess,
    pid=st.integers(0, 2**31),
    used_mib=optional(AMOUNTS),
    pod_uid=st.just(UNSET) | st.none() | st.uuids().map(str),
)
REPORTED = st.builds(
    ReportedGpu,
    total_mib=st.integers(1001, MAX_MIB),
    reserved_mib=optional(st.integers(0, 1000)),
    uuid=optional(UUIDS),
    index=optional(st.integers(0, 1023)),
    model=optional(st.text()),
    used_mib=optional(AMOUNTS),
    utilization_percent=optional(st.integers(0, 100)),
    temperature_c=optional(st.integers(-40, 120)),
    health=optional(st.sampled_from(Health)),
    replicas=optional(st.integers(1, 1000)),
    unified=optional(st.booleans()),
    numa=optional(st.integers(0, 8)),
    link_group=optional(st.integers(0, 8)),
    mig=optional(st.booleans()),
    processes=optional(st.lists(PROCESSES, max_size=3).map(tuple)),
    memory_source=optional(st.sampled_from(["nvml", "meminfo"])),
    note=optional(st.text(max_size=20)),
)
REPORTS = st.builds(
    GpuReport,
    node=NAMES,
    observed_at=optional(TIMES),
    platform=st.text(max_size=8),
    gpus=optional(st.lists(REPORTED, max_size=4).map(tuple)),
    realtime_check=optional(st.sampled_from(NodeCheck)),
    notes=st.lists(st.text(max_size=20), max_size=3).map(tuple),
)


@given(REPORTS)
def test_report(report: GpuReport) -> None:
    assert decode_report(through_json(encode_report(report))) == report


def test_a_report_is_written_without_what_the_card_did_not_answer() -> None:
    card = ReportedGpu(uuid="GPU-a", total_mib=5, processes=(ReportedProcess(pid=1, pod_uid=None),))

    assert through_json(encode_report(GpuReport(node="n1", observed_at=0.0, gpus=(card,)))) == {
        "apiVersion": "vramline.io/v1alpha1",
        "kind": "GpuReport",
        "metadata": {"name": "n1"},
        "status": {
            "observedAt": "1970-01-01T00:00:00Z",
            "gpus": [{"uuid": "GPU-a", "totalMiB": 5, "processes": [{"pid": 1, "podUID": None}]}],
        },
    }


CLAIMS = st.builds(
    Claim,
    pod_uid=st.uuids().map(str),
    pod=NAMES,
    gpu=UUIDS,
    mib=MIB,
    cores=CORES,
    epoch=st.integers(0, 2**53),
)


@st.composite
def ledgers(draw: st.DrawFn) -> GpuLedger:
    cards = draw(st.lists(UUIDS, max_size=4, unique=True))
    claims = []
    for card in cards:
        on_card = draw(st.lists(CLAIMS, min_size=1, max_size=3, unique_by=lambda claim: claim.pod_uid))
        claims += [msgspec.structs.replace(claim, gpu=card) for claim in on_card]
    return GpuLedger(
        node=draw(NAMES),
        epoch=draw(st.integers(0, 2**53)),
        claims=tuple(claims),
        resource_version=draw(st.sampled_from(["", "1", "4711"])),
    )


@given(ledgers())
def test_ledger(ledger: GpuLedger) -> None:
    assert decode_ledger(through_json(encode_ledger(ledger))) == ledger


BIND_REQUESTS = st.builds(
    BindRequest,
    namespace=NAMES,
    name=NAMES,
    pod_uid=st.uuids().map(str),
    node=NAMES,
    gpus=SHARES.map(tuple),
    phase=st.sampled_from(BindPhase),
    reason=st.text(),
    attempts=st.integers(0, 1000),
)


@given(BIND_REQUESTS)
def test_bind_request(request: BindRequest) -> None:
    assert decode_bind_request(through_json(encode_bind_request(request))) == request
