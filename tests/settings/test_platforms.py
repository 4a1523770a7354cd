"""Profiles of platforms: the default, and what an operator says of one."""

import json

import pytest

from vramline.errors import MistakesError
from vramline.settings import load
from vramline.settings.platforms import as_platforms, profile_for
from vramline.wire.platform_profile import HostMount, PlatformProfile

LIBRARIES = "/usr/lib/aarch64-linux-gnu/nvidia"


@pytest.mark.parametrize("platform", ["", "x86", "arm64", "riscv64"])
def test_nothing_but_a_board_needs_anything(platform: str) -> None:
    assert profile_for(platform, "") == PlatformProfile()


def test_a_board_gets_its_libraries_read_only_and_is_not_privileged() -> None:
    profile = profile_for("tegra", "")

    assert profile.mounts == (HostMount(host_path=LIBRARIES, path=LIBRARIES, read_only=True),)
    assert profile.env == {"NVIDIA_DRIVER_CAPABILITIES": "utility"}
    assert (profile.privileged, profile.devices) == (False, ())


def test_what_is_said_replaces_that_part_alone() -> None:
    said = as_platforms({"tegra": {"runtimeClass": "nvidia"}, "x86": {"runtimeClass": "nvidia"}})

    assert profile_for("tegra", said).runtime_class == "nvidia"
    assert profile_for("tegra", said).mounts == profile_for("tegra", "").mounts
    assert profile_for("x86", said) == PlatformProfile(runtime_class="nvidia")
    assert profile_for("arm64", said) == PlatformProfile()


def test_every_part_can_be_said() -> None:
    said = as_platforms(
        {
            "tegra": {
                "libraries": ["/usr/lib/aarch64-linux-gnu/tegra", "/opt/stand-in:/usr/lib/nvidia"],
                "environment": {"LD_LIBRARY_PATH": "/usr/lib/nvidia"},
                "devices": ["/dev/nvmap"],
                "groups": [44, 104],
                "annotations": {"devices.nri.io/container.reserve": "- path: /dev/nvmap"},
            }
        }
    )

    profile = profile_for("tegra", said)

    assert [(each.host_path, each.path) for each in profile.mounts] == [
        ("/usr/lib/aarch64-linux-gnu/tegra", "/usr/lib/aarch64-linux-gnu/tegra"),
        ("/opt/stand-in", "/usr/lib/nvidia"),
    ]
    assert profile.env == {"LD_LIBRARY_PATH": "/usr/lib/nvidia"}
    assert (profile.devices, profile.groups) == (("/dev/nvmap",), (44, 104))
    assert "devices.nri.io/container.reserve" in profile.annotations


def test_a_privileged_pod_sees_all_of_dev_and_needs_nothing_by_name() -> None:
    profile = profile_for("tegra", as_platforms({"tegra": {"privileged": True, "devices": ["/dev/nvmap"]}}))

    assert profile.privileged
    assert profile.mounts[-1] == HostMount(host_path="/dev", path="/dev", read_only=False)
    assert (profile.devices, profile.groups) == ((), ())


def test_file_and_variable_say_the_same() -> None:
    said = {"tegra": {"runtimeClass": "nvidia"}}

    by_file = load({"platforms": said}, {}, {})
    by_variable = load(None, {"VRAMLINE_PLATFORMS": json.dumps(said)}, {})

    assert by_file.platforms == by_variable.platforms == '{"tegra":{"runtimeClass":"nvidia"}}'


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("tegra", "cannot be read"),
        (["tegra"], "cannot be read"),
        ({"tegra": {"runtimeclass": "nvidia"}}, "unknown field"),
        ({"tegra": {"privileged": "yes"}}, "Expected `bool"),
        ({"Tegra!": {}}, "is no platform"),
        ({"tegra": {"libraries": ["usr/lib"]}}, "is no absolute path"),
        ({"tegra": {"libraries": ["/usr/lib:lib"]}}, "is no absolute path"),
        ({"tegra": {"devices": ["/etc/shadow"]}}, "is no path in /dev"),
        ({"tegra": {"environment": {"A B": "c"}}}, "cannot be set"),
        ({"tegra": {"environment": {"POD_NAME": "other"}}}, "cannot be set"),
        ({"tegra": {"runtimeClass": "no name"}}, "is no name"),
        ({"tegra": {"groups": [0]}}, "below 1"),
    ],
)
def test_a_mistake_is_named(wrong: object, problem: str) -> None:
    with pytest.raises(MistakesError, match="settings file: platforms") as told:
        load({"platforms": wrong}, {}, {})

    assert problem in str(told.value)
