"""BindRequest objects: how they are written, and what is refused."""

from typing import Any

import pytest

from vramline.errors import RequestError
from vramline.model.pod import GpuShare
from vramline.units import Mib
from vramline.wire.bind_request_v1alpha1 import (
    BindPhase,
    BindRequest,
    decode_bind_request,
    encode_bind_request,
)

REQUEST = BindRequest(
    namespace="ns",
    name="p",
    pod_uid="u1",
    node="n1",
    gpus=(GpuShare("GPU-a", Mib(8000)),),
    phase=BindPhase.FAILED,
    reason="no device",
    attempts=2,
)
DOCUMENT: dict[str, Any] = {
    "apiVersion": "vramline.io/v1alpha1",
    "kind": "BindRequest",
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}],
    },
    "spec": {"podUID": "u1", "node": "n1", "gpus": [{"uuid": "GPU-a", "mib": 8000}]},
    "status": {"phase": "Failed", "attempts": 2, "reason": "no device"},
}


def test_a_request_belongs_to_its_pod() -> None:
    assert encode_bind_request(REQUEST) == DOCUMENT


def test_a_new_request_is_pending() -> None:
    found = decode_bind_request({**DOCUMENT, "status": None})

    assert (found.phase, found.attempts) == (BindPhase.PENDING, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"status": {"phase": "Done"}},
            "status.phase = 'Done': is not a known word; accepted: Pending, Succeeded, Failed",
        ),
        ({"status": {"attempts": -1}}, "status.attempts = -1: must be >= 0"),
        ({"spec": {**DOCUMENT["spec"], "gpus": []}}, "spec.gpus: must be of length >= 1"),
        ({"spec": {"node": "n1"}}, "spec: has no podUID"),
        (
            {"apiVersion": "v1"},
            "apiVersion = 'v1': is not a version that is known here; accepted: vramline.io/v1alpha1",
        ),
    ],
)
def test_a_malformed_request_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_bind_request({**DOCUMENT, **change})

    assert str(caught.value) == f"BindRequest: {message}"
