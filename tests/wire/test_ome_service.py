"""OME's services as people write them."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from vramline.errors import RequestError
from vramline.wire.ome_service import lay_over, read_inference_service
from vramline.wire.ome_v1beta1 import DeploymentMode


def service(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": spec,
    }


def test_what_is_served_is_read() -> None:
    found = read_inference_service(
        service(model={"name": "m"}, runtime={"name": "r"}, engine={"minReplicas": 2, "maxReplicas": 4})
    )

    assert (found.name, found.namespace, found.model, found.runtime) == ("s", "ns", "m", "r")
    assert (found.mode, found.workers, found.copies) == (None, 0, 2)


@pytest.mark.parametrize(
    ("engine", "mode"),
    [
        ({"minReplicas": 0}, DeploymentMode.SERVERLESS),
        ({"leader": {}, "worker": {"size": 3}}, DeploymentMode.MULTI_NODE),
        ({"annotations": {"ome.io/deploymentMode": "RawDeployment"}, "minReplicas": 0}, DeploymentMode.RAW),
    ],
    ids=["no replica", "leader and worker", "an annotation wins"],
)
def test_the_mode_is_that_which_ome_derives(engine: dict[str, Any], mode: DeploymentMode) -> None:
    assert read_inference_service(service(engine=engine)).mode is mode


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (service(model={"modelName": "m"}), r"InferenceService s: spec.model.name: is missing"),
        (service(runtime={}), r"InferenceService s: spec.runtime.name: is missing"),
        ({**service(), "kind": "Service"}, "is not a service of OME"),
        ({**service(), "apiVersion": "serving.kserve.io/v1beta1"}, "is not a service of OME"),
        (service(engine={"minReplicas": "two"}), "spec.engine.minReplicas"),
        (
            service(engine={"annotations": {"ome.io/deploymentMode": "VirtualDeployment"}}),
            "is a mode that cannot be placed here",
        ),
        ({"kind": "InferenceService"}, "apiVersion"),
    ],
    ids=["no model", "no runtime", "kind", "group", "replicas", "mode", "nothing"],
)
def test_a_service_that_ome_would_refuse_is_refused_by_the_field(
    document: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(RequestError, match=complaint):
        read_inference_service(document)


def test_our_part_is_laid_over_and_the_number_of_copies_left_alone() -> None:
    written = {"spec": {"engine": {"minReplicas": 3, "labels": {"a": "b"}}, "router": {"minReplicas": 1}}}
    ours = {"spec": {"engine": {"minReplicas": 1, "maxReplicas": 1, "schedulerName": "vramline"}}}

    assert lay_over(written, ours) == {
        "spec": {
            "engine": {
                "minReplicas": 3,
                "maxReplicas": 1,
                "labels": {"a": "b"},
                "schedulerName": "vramline",
            },
            "router": {"minReplicas": 1},
        }
    }
    assert written["spec"]["engine"] == {"minReplicas": 3, "labels": {"a": "b"}}


def test_every_sample_that_ome_ships_is_read_but_one() -> None:
    folder = os.environ.get("VRAMLINE_DATA")
    if not folder:
        pytest.skip("VRAMLINE_DATA is not set: the folder with OME's samples")
    read, refused = 0, []
    for file in sorted((Path(folder) / "ome" / "samples").rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if not document or document["kind"] != "InferenceService":
                continue
            try:
                read_inference_service(document)
                read += 1
            except RequestError as error:
                refused.append(str(error))

    (message,) = refused
    assert read == 147
    assert message.startswith(
        "InferenceService exaone-3-5-7-8b-instruct: spec.model.name: is missing; accepted: "
    )
