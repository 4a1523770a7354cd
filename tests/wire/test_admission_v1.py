"""Reviews as the API server sends them, and answers as it reads them."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.errors import RequestError
from vramline.wire.admission import Admitted, Refused
from vramline.wire.admission_v1 import AdmissionRequest, read_review, write_answer
from vramline.wire.pod_patch import PatchOperation

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def review(**request: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "object": {"metadata": {"name": "p"}},
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


def read(document: object) -> AdmissionRequest:
    return read_review(msgspec.json.encode(document))


def answer(outcome: Admitted | Refused) -> Any:
    return msgspec.json.decode(write_answer(read(review()), outcome))


def test_a_review_is_read() -> None:
    request = read(review())

    assert (request.uid, request.operation, request.object) == (UID, "CREATE", {"metadata": {"name": "p"}})


def test_a_patch_is_base64_of_a_list() -> None:
    response = answer(Admitted(patch=(PatchOperation("/spec/a~1b", "x"),)))["response"]

    assert (response["uid"], response["allowed"], response["patchType"]) == (UID, True, "JSONPatch")
    assert msgspec.json.decode(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/a~1b", "value": "x"}
    ]


def test_nothing_to_say_is_said_shortly() -> None:
    assert answer(Admitted()) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }


def test_a_refusal_carries_its_message() -> None:
    assert answer(Refused("Pod ns/p: no"))["response"] == {
        "uid": UID,
        "allowed": False,
        "status": {"code": 422, "reason": "Invalid", "message": "Pod ns/p: no"},
    }


def test_long_warnings_are_cut() -> None:
    warnings = answer(Admitted(warnings=("x" * 120, "y" * 121)))["response"]["warnings"]

    assert warnings == ["x" * 120, "y" * 119 + "…"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"", "is not JSON", id="nothing"),
        pytest.param(b"\xff", "is not JSON", id="binary"),
        pytest.param(b"[" * 100_000, "is not JSON", id="nested without end"),
        pytest.param([], "must be a mapping", id="a list"),
        pytest.param({}, "apiVersion and kind", id="empty"),
        pytest.param({**review(), "apiVersion": "admission.k8s.io/v1beta1"}, "v1beta1", id="an old version"),
        pytest.param({**review(), "request": None}, "request: is missing", id="no request"),
        pytest.param(review(uid=""), "request: is missing or has no uid", id="no uid"),
        pytest.param(review(kind={"group": "apps", "kind": "Deployment"}), "apps/Deployment", id="a kind"),
        pytest.param(review(object=7), "request.object = 7: must be a mapping", id="a number for a pod"),
        pytest.param(review(operation=None), "request.operation", id="no operation"),
    ],
)
def test_bad_reviews_are_refused_with_a_reason(body: object, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_review(body if isinstance(body, bytes) else msgspec.json.encode(body))

    assert words in str(caught.value)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        read_review(body)
