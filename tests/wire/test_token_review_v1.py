"""Whose a token is, as the API server says it."""

from typing import Any

import pytest

from vramline.wire.token_review_v1 import TokenHolder, expiry_of, holder_in, token_review

NODE = "authentication.kubernetes.io/node-name"


def answer(**status: Any) -> dict[str, Any]:
    user = {"username": "u", "extra": {NODE: ["n1"]}}
    return {"status": {"authenticated": True, "user": user, "audiences": ["vramline"], **status}}


def test_the_question_names_token_and_audience() -> None:
    assert token_review("t", "vramline")["spec"] == {"token": "t", "audiences": ["vramline"]}


@pytest.mark.parametrize(
    ("status", "holder"),
    [
        pytest.param({}, TokenHolder("u", "n1"), id="known and bound to a node"),
        pytest.param({"user": {"username": "u"}}, TokenHolder("u", ""), id="bound to no node"),
        pytest.param(
            {"user": {"username": "u", "extra": {NODE: ["n1", "n2"]}}}, TokenHolder("u", ""), id="two nodes"
        ),
        pytest.param({"authenticated": False}, None, id="not known"),
        pytest.param({"audiences": ["other"]}, None, id="for somebody else"),
        pytest.param({"audiences": None}, None, id="an odd answer"),
    ],
)
def test_the_answer_is_read(status: dict[str, Any], holder: TokenHolder | None) -> None:
    assert holder_in(answer(**status), "vramline") == holder


@pytest.mark.parametrize("text", ["", "opaque", "a.b.c", "a.!!!.c", "a.W10.c"])
def test_a_token_that_does_not_say_when_it_expires(text: str) -> None:
    assert expiry_of(text) is None
