"""Malformed reports: the path, the value, and what is accepted."""

from typing import Any

import pytest

from kubernetes_builders import report_document
from vramline.errors import RequestError
from vramline.wire.report_v1alpha1 import GpuReport, decode_report

CARD = {"uuid": "GPU-a", "totalMiB": 32600}


def refusal(document: object) -> str:
    with pytest.raises(RequestError) as caught:
        decode_report(document)
    return str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"totalMiB": 0}, "totalMiB = 0: must be >= 1"),
        ({"totalMiB": -5}, "totalMiB = -5: must be >= 1"),
        ({"totalMiB": 2**63}, "totalMiB = 9223372036854775808: must be <= 2147483647"),
        ({"totalMiB": float("nan")}, "totalMiB = nan: must be a whole number, not a number"),
        ({"totalMiB": "32600"}, "totalMiB = '32600': must be a whole number, not text"),
        ({"totalMiB": None}, "totalMiB: must be a whole number, not nothing"),
        ({"totalMiB": True}, "totalMiB = True: must be a whole number, not true or false"),
        ({"usedMiB": -1}, "usedMiB = -1: must be >= 0"),
        ({"usedMiB": 6144.5}, "usedMiB = 6144.5: must be a whole number, not a number"),
        (
            {"reservedMiB": 32600},
            "reservedMiB = 32600: leaves nothing of totalMiB, which is 32600; accepted: less than totalMiB",
        ),
        (
            {"health": "Fine"},
            "health = 'Fine': is not a known word; accepted: Healthy, Suspect, Unhealthy, Probation",
        ),
        ({"utilizationPercent": 101}, "utilizationPercent = 101: must be <= 100"),
        ({"replicas": 0}, "replicas = 0: must be >= 1"),
        ({"index": -1}, "index = -1: must be >= 0"),
        ({"uuid": ""}, "uuid = '': must be of length >= 1"),
        ({"uuid": 5}, "uuid = 5: must be text, not a whole number"),
        ({"unified": "no"}, "unified = 'no': must be true or false, not text"),
        ({"processes": {}}, "processes: must be a list, not a mapping"),
        ({"processes": [{"usedMiB": 5}]}, "processes[0]: has no pid"),
        ({"processes": [{"pid": 1, "usedMiB": -5}]}, "processes[0].usedMiB = -5: must be >= 0"),
        (
            {"processes": [{"pid": 1, "podUID": 7}]},
            "processes[0].podUID = 7: must be text, not a whole number",
        ),
    ],
)
def test_a_malformed_card_is_refused(fields: dict[str, Any], message: str) -> None:
    document = report_document({"uuid": "GPU-b", "totalMiB": 5}, {**CARD, **fields})

    assert refusal(document) == f"GpuReport: status.gpus[1].{message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"apiVersion": "vramline.io/v1"},
            (
                "apiVersion = 'vramline.io/v1': is not a version that is known here;"
                " accepted: vramline.io/v1alpha1"
            ),
        ),
        ({"status": []}, "status: must be a mapping, not a list"),
        (
            {"status": {"observedAt": "yesterday"}},
            (
                "status.observedAt = 'yesterday': is not a point in time;"
                " accepted: RFC 3339 with a zone, such as 2026-01-01T00:00:00Z"
            ),
        ),
        (
            {"status": {"observedAt": 5}},
            (
                "status.observedAt = 5: is not a point in time;"
                " accepted: RFC 3339 with a zone, such as 2026-01-01T00:00:00Z"
            ),
        ),
        (
            {"status": {"observedAt": "2026-01-01T00:00:00"}},
            (
                "status.observedAt = '2026-01-01T00:00:00': is not a point in time;"
                " accepted: RFC 3339 with a zone, such as 2026-01-01T00:00:00Z"
            ),
        ),
        ({"status": {"gpus": {}}}, "status.gpus: must be a list, not a mapping"),
        ({"status": {"gpus": [{}]}}, "status.gpus[0]: has no totalMiB"),
    ],
)
def test_a_malformed_report_is_refused(change: dict[str, Any], message: str) -> None:
    assert refusal({**report_document(CARD), **change}) == f"GpuReport: {message}"


def test_a_report_without_status_has_not_looked_yet() -> None:
    document = {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuReport", "metadata": {"name": "n1"}}

    assert decode_report(document) == GpuReport(node="n1")


def test_unknown_fields_are_ignored() -> None:
    document = report_document({**CARD, "fanPercent": 30})

    assert decode_report(document) == decode_report(report_document(CARD))
