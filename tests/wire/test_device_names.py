"""Names of devices for a container's runtime."""

import pytest

from vramline.errors import MistakesError
from vramline.settings import load


@pytest.mark.parametrize("naming", ["uuid", "k8s.device-plugin.nvidia.com/gpu", "nvidia.com/gpu", "a/b"])
def test_uuid_and_every_kind_of_devices_are_accepted(naming: str) -> None:
    assert load({"deviceNames": naming}, {}, {}).device_names == naming


@pytest.mark.parametrize(
    "wrong", ["", "cdi", "nvidia.com/", "/gpu", "nvidia.com/gpu=all", "a/b/c", 7, "a,b/c"]
)
def test_anything_else_is_named_with_what_is_accepted(wrong: object) -> None:
    with pytest.raises(MistakesError, match=r"deviceNames.*accepted: uuid, or a CDI kind"):
        load({"deviceNames": wrong}, {}, {})
