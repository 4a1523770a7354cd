"""Every object that is installed has the form that Kubernetes has published for it."""

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from install.rendered import Object, rendered

OBJECTS = rendered("--with-agent")


def name_of(each: Object) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


@pytest.mark.parametrize("version", ["1.30", "1.35", "1.37"])
@pytest.mark.parametrize("each", OBJECTS, ids=[name_of(each) for each in OBJECTS])
def test_it_has_the_published_form(each: Object, version: str) -> None:
    kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("each", OBJECTS, ids=[name_of(each) for each in OBJECTS])
def test_it_can_be_recognised_as_ours(each: Object) -> None:
    assert "vramline" in each["metadata"]["name"]
    if "namespace" in each["metadata"]:
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "vramline"
