"""Ledger objects: what is read, and what is refused."""

from typing import Any

import pytest

from vramline.errors import RequestError
from vramline.model.claim import Claim, ClaimState
from vramline.units import Mib
from vramline.wire.ledger_v1alpha1 import GpuLedger, decode_ledger, encode_ledger

CLAIM = {"podUID": "u1", "pod": "ns/p", "mib": 8000, "cores": 30, "epoch": 3}


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "vramline.io/v1alpha1",
        "kind": "GpuLedger",
        "metadata": {"name": "n1", "resourceVersion": "77"},
        "spec": spec,
    }


def test_claims_are_read_as_reserved() -> None:
    claim = Claim(
        pod_uid="u1",
        pod="ns/p",
        gpu="GPU-a",
        mib=Mib(8000),
        cores=30,
        epoch=3,
        state=ClaimState.RESERVED,
    )

    assert decode_ledger(document(epoch=4, claims={"GPU-a::2": [CLAIM]})) == GpuLedger(
        node="n1", epoch=4, claims=(claim,), resource_version="77"
    )


def test_an_empty_ledger_is_one() -> None:
    assert decode_ledger({**document(), "spec": None}) == GpuLedger(node="n1", resource_version="77")


def test_a_ledger_is_written_by_card() -> None:
    ledger = decode_ledger(document(epoch=4, claims={"GPU-a": [CLAIM]}))

    written = encode_ledger(ledger)

    assert written.pop("spec") == document(epoch=4, claims={"GPU-a": [CLAIM]})["spec"]
    assert written["metadata"] == {"name": "n1", "resourceVersion": "77", "managedFields": [{}]}


def test_a_ledger_that_is_not_stored_yet_says_nothing_about_managed_fields() -> None:
    assert encode_ledger(GpuLedger(node="n1"))["metadata"] == {"name": "n1"}


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ([], "spec.claims: must be a mapping, not a list"),
        ({"GPU-a": {}}, "spec.claims[GPU-a]: must be a list, not a mapping"),
        (
            {"GPU-a": [CLAIM, CLAIM]},
            (
                "spec.claims[GPU-a] = 'u1': holds two claims on this card;"
                " accepted: one claim for each pod on a card"
            ),
        ),
    ],
)
def test_a_malformed_ledger_is_refused(claims: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_ledger(document(claims=claims), subject="GpuLedger n1")

    assert str(caught.value) == f"GpuLedger n1: {message}"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mib": 0}, "must be >= 1"),
        ({"mib": 2**40}, "must be <= 2147483647"),
        ({"mib": "8000"}, "must be a whole number, not text"),
        ({"cores": 101}, "must be <= 100"),
        ({"epoch": -1}, "must be >= 0"),
        ({"podUID": ""}, "must be of length >= 1"),
    ],
)
def test_a_malformed_claim_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_ledger(document(claims={"GPU-a": [{**CLAIM, **fields}]}))

    assert caught.value.problem == problem


def test_another_version_is_refused() -> None:
    with pytest.raises(RequestError, match="is not a version that is known here"):
        decode_ledger({**document(), "apiVersion": "vramline.io/v2"})
