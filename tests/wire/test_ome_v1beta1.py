"""What is written for OME: valid by its own CRD in every mode, with placement where it is read."""

import functools
import os
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # comes with kubernetes-validate, without stubs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vramline.errors import RequestError
from vramline.wire.ome_v1beta1 import (
    ChosenNode,
    DeploymentMode,
    ServiceWish,
    model_ready_label,
    name_label,
    sanitize_dns_name,
    service_name,
    write_inference_service,
)

SOFT = ChosenNode("n1", "host-1", pinned=False)
PINNED = ChosenNode("n1", "host-1", pinned=True)


def wish(**fields: Any) -> ServiceWish:
    base: dict[str, Any] = {"name": "s", "namespace": "ns", "model": "m", "runtime": "r", "gpus": 2}
    return ServiceWish(**{**base, **fields})


def engine(**fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = write_inference_service(wish(**fields))
    found: dict[str, Any] = document["spec"]["engine"]
    return found


@functools.cache
def schema_of(kind: str) -> dict[str, Any]:
    folder = os.environ.get("VRAMLINE_DATA")
    if not folder:
        pytest.skip("VRAMLINE_DATA is not set: the folder with OME's CRDs")
    text = (Path(folder) / "ome" / "crds" / f"ome.io_{kind}.yaml").read_text(encoding="utf-8")
    crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 — the safe one
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


WISHES = [
    pytest.param({}, id="nothing said"),
    pytest.param({"node": SOFT}, id="preferred"),
    pytest.param({"node": PINNED}, id="pinned"),
    pytest.param({"node": ChosenNode("n1", "", pinned=True)}, id="pinned without a label"),
    pytest.param(
        {"scheduler": "vramline", "pod_annotations": {"vramline.io/vram": "8Gi"}}, id="our scheduler"
    ),
    pytest.param({"mode": DeploymentMode.SERVERLESS, "node": SOFT}, id="serverless"),
    pytest.param({"mode": DeploymentMode.MULTI_NODE, "workers": 1, "node": SOFT}, id="several nodes"),
    pytest.param(
        {"mode": DeploymentMode.MULTI_NODE, "workers": 1, "scheduler": "vramline"}, id="several, ours"
    ),
    pytest.param({"labels": {"a": "b"}, "storage": {"type": "pvc", "pvc_name": "x"}}, id="volume"),
]


@pytest.mark.parametrize("fields", WISHES)
def test_what_is_written_is_valid_by_omes_own_schema(fields: dict[str, Any]) -> None:
    document = write_inference_service(wish(**fields))

    jsonschema.Draft7Validator(schema_of("inferenceservices")).validate(document)
    unknown = set(document["spec"]["engine"]) - set(  # type: ignore[index]
        schema_of("inferenceservices")["properties"]["spec"]["properties"]["engine"]["properties"]
    )
    assert unknown == set()


def test_affinity_stands_in_the_engine_and_names_the_label_not_the_node() -> None:
    required = engine(node=PINNED)["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]

    assert required["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"]}
    ]


def test_a_node_without_the_label_is_named_by_its_field() -> None:
    affinity = engine(node=ChosenNode("n1", "", pinned=True))["affinity"]["nodeAffinity"]
    term = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]

    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}


def test_a_soft_placement_is_a_preference() -> None:
    assert list(engine(node=SOFT)["affinity"]["nodeAffinity"]) == [
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]


def test_in_multi_node_placement_stands_with_leader_and_worker_only() -> None:
    found = engine(mode=DeploymentMode.MULTI_NODE, workers=1, gpus=16, node=SOFT, scheduler="vramline")

    assert {"affinity", "schedulerName", "runner"}.isdisjoint(found)
    for part in ("leader", "worker"):
        assert found[part]["schedulerName"] == "vramline"
        assert found[part]["affinity"]
        assert found[part]["runner"]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert found["worker"]["size"] == 1


def test_a_rolling_update_needs_no_second_copy() -> None:
    assert engine()["deploymentStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"mode": DeploymentMode.SERVERLESS, "scheduler": "vramline"}, id="Knative has no scheduler"
        ),
        pytest.param({"mode": DeploymentMode.MULTI_NODE}, id="no workers"),
        pytest.param({"mode": DeploymentMode.MULTI_NODE, "workers": 2, "gpus": 8}, id="unequal parts"),
        pytest.param(
            {"mode": DeploymentMode.MULTI_NODE, "workers": 1, "node": PINNED}, id="one node for two"
        ),
        pytest.param({"storage": {"bucket": "b"}}, id="storage of another kind"),
    ],
)
def test_what_ome_cannot_carry_out_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        write_inference_service(wish(**fields))


@given(st.text(max_size=300))
def test_any_name_becomes_one_that_is_accepted(text: str) -> None:
    accepted = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
    assert accepted.fullmatch(sanitize_dns_name(text))
    assert len(sanitize_dns_name(text)) <= 253
    name = service_name(text, "1")
    assert accepted.fullmatch(name)
    assert len(name) <= 50
    assert re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", name_label(text))
    assert len(name_label(text)) <= 63


def test_long_names_stay_different() -> None:
    assert service_name("a" * 80, "1") != service_name("a" * 81, "1")


def test_the_label_of_a_long_model_is_omes() -> None:
    label = model_ready_label("deepseek-r1-distill-qwen-32b-instruct-2501")

    assert label.startswith("models.ome.io/clusterbasemodel.")
    assert len(label.rpartition(".")[2]) == 32


def test_every_sample_that_ome_ships_is_valid_but_one() -> None:
    """So the schema is the one that the samples were written for."""
    validator = jsonschema.Draft7Validator(schema_of("inferenceservices"))
    bad: list[tuple[str, str]] = []
    for file in sorted((Path(os.environ["VRAMLINE_DATA"]) / "ome" / "samples").rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if document and document.get("kind") == "InferenceService":
                bad += [(file.name, error.message) for error in validator.iter_errors(document)]

    assert bad == [("exaone-3-5-7-8b-instruct-isvc.yaml", "'name' is a required property")]
