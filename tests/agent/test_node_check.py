"""The node's own mode, and what kind of machine it is."""

from pathlib import Path

import pytest

from vramline.agent.node_check import read_node_check
from vramline.agent.platforms import name_platform
from vramline.errors import RequestError


@pytest.mark.parametrize(
    ("mode", "enabled", "check"),
    [
        ("", "", None),
        ("strict", "", "strict"),
        ("warning", "true", "warning"),
        ("disabled", "true", "strict"),
        ("strict", "false", "disabled"),
        ("", "true", "enabled"),
        ("", "FALSE", "disabled"),
    ],
)
def test_mode_and_switch(mode: str, enabled: str, check: str | None) -> None:
    environment = {"HAMI_REALTIME_CHECK_MODE": mode, "HAMI_ENABLE_REALTIME_CHECK": enabled}

    assert read_node_check(environment) == check


@pytest.mark.parametrize("variable", ["HAMI_REALTIME_CHECK_MODE", "HAMI_ENABLE_REALTIME_CHECK"])
def test_a_wrong_value_is_named(variable: str) -> None:
    with pytest.raises(RequestError, match=variable):
        read_node_check({variable: "sometimes"})


def test_platforms(tmp_path: Path) -> None:
    assert name_platform("x86_64", tmp_path) == "x86"
    assert name_platform("aarch64", tmp_path) == "arm64"
    (tmp_path / "proc" / "device-tree").mkdir(parents=True)
    (tmp_path / "proc" / "device-tree" / "compatible").write_bytes(b"nvidia,p3737\0nvidia,tegra234\0")
    assert name_platform("aarch64", tmp_path) == "tegra"
    assert name_platform("riscv64", tmp_path) == "riscv64"
