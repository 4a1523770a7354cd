"""Frames of the agents' stream."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.errors import RequestError
from vramline.wire.agent_stream_v1 import (
    AgentFrame,
    LookAnswer,
    LookRequest,
    Rest,
    Sample,
    decode_agent_frame,
    decode_scheduler_frame,
    encode_frame,
    report_in,
)
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess, ReportStatus, status_of

CARD = ReportedGpu(uuid="GPU-a", total_mib=81559, reserved_mib=550, used_mib=6144)
STATUSES = st.builds(
    ReportStatus,
    platform=st.none() | st.sampled_from(["x86", "tegra"]),
    gpus=st.none() | st.lists(st.just(CARD), max_size=3).map(tuple),
)


@given(
    st.builds(Sample, age_ms=st.integers(0, 86_400_000), status=STATUSES)
    | st.builds(LookAnswer, id=st.integers(0, 2**53), age_ms=st.integers(0, 1000), status=STATUSES)
)
def test_what_an_agent_sends_is_what_is_read(frame: AgentFrame) -> None:
    assert decode_agent_frame(encode_frame(frame)) == frame


@given(st.builds(LookRequest, id=st.integers(0, 2**53), gpus=st.lists(st.uuids().map(str)).map(tuple)))
def test_what_a_scheduler_sends_is_what_is_read(frame: LookRequest) -> None:
    assert decode_scheduler_frame(encode_frame(frame)) == frame


def test_frames_look_as_documented() -> None:
    card = ReportedGpu(uuid="GPU-a", total_mib=5, processes=(ReportedProcess(pid=1, pod_uid=None),))
    sample = Sample(age_ms=12, status=status_of(GpuReport(node="n1", observed_at=0.0, gpus=(card,))))

    assert msgspec.json.decode(encode_frame(sample)) == {
        "kind": "sample",
        "ageMs": 12,
        "status": {
            "observedAt": "1970-01-01T00:00:00Z",
            "gpus": [{"uuid": "GPU-a", "totalMiB": 5, "processes": [{"pid": 1, "podUID": None}]}],
        },
    }
    assert encode_frame(LookRequest(id=7, gpus=("GPU-a",))) == '{"kind":"look","id":7,"gpus":["GPU-a"]}'
    assert encode_frame(Rest(ms=3_000)) == '{"kind":"rest","ms":3000}'
    assert decode_scheduler_frame('{"kind":"rest","ms":3000}') == Rest(ms=3_000)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "agent: frame = '': is not JSON (Input data was truncated)"),
        ("[]", "agent: frame: must be a mapping, not a list"),
        ('{"kind":"rest"}', "agent: frame.kind = 'rest': Invalid value 'rest'"),
        ('{"kind":"sample","status":{}}', "agent: frame: has no ageMs"),
        (
            '{"kind":"sample","ageMs":-1,"status":{}}',
            "agent: frame.ageMs = -1: must be >= 0",
        ),
        (
            '{"kind":"sample","ageMs":1,"status":{"gpus":[{"totalMiB":0}]}}',
            "agent: frame.status.gpus[0].totalMiB = 0: must be >= 1",
        ),
    ],
)
def test_a_bad_frame_is_refused_with_its_path(text: str, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_agent_frame(text)

    assert str(caught.value) == problem


@given(st.text())
def test_any_text_is_a_frame_or_a_request_error(text: str) -> None:
    try:
        decode_scheduler_frame(text)
    except RequestError:
        return
    raise AssertionError(text)


def test_age_counts_from_the_receivers_clock() -> None:
    status = status_of(GpuReport(node="n1", observed_at=5_000_000.0, gpus=(CARD,)))
    frame = Sample(age_ms=250, status=status)

    report = report_in(frame, node="n2", received_at=1000.0)

    assert (report.node, report.observed_at, report.gpus) == ("n2", 999.75, (CARD,))


def test_a_status_that_makes_no_sense_is_refused_when_it_becomes_a_report() -> None:
    card = ReportedGpu(uuid="GPU-a", total_mib=5, reserved_mib=5)

    with pytest.raises(RequestError, match=r"agent of node n1: status.gpus\[0\].reservedMiB"):
        report_in(Sample(age_ms=0, status=ReportStatus(gpus=(card,))), node="n1", received_at=0.0)
