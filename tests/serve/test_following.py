"""Which holder of a Lease is in which pod."""

import pytest

from vramline.serve.following import is_held_in

LONG = "a-deployment-of-a-very-long-name-in-a-cluster-of-some-size-7d9-x2k4z"


@pytest.mark.parametrize(
    ("pod_name", "holder", "expected"),
    [
        pytest.param("vramline-7d9-x2k4z", "vramline-7d9-x2k4z_0d1e", True, id="in this pod"),
        pytest.param("vramline-7d9-x2k4z", "vramline-7d9-aaaaa_0d1e", False, id="in another pod"),
        pytest.param("vramline-1", "vramline-11_0d1e", False, id="a name that only begins like it"),
        pytest.param("vramline-1", "", False, id="held by nobody"),
        pytest.param(LONG, LONG[:63].rstrip("-") + "_0d1e", True, id="a host name that was cut"),
    ],
)
def test_a_holder_is_in_the_pod_whose_host_name_it_signs_with(
    pod_name: str, holder: str, expected: bool
) -> None:
    assert is_held_in(pod_name, holder) is expected
