"""What kubelet says of devices and pods, over its socket."""

import asyncio
from pathlib import Path

import pytest

from agent.stand_in_kubelet import serve_pod_resources
from vramline.agent.pod_resources import HeldDevice, list_held_devices
from vramline.errors import TransientError


def test_every_device_is_told_with_its_holder(tmp_path: Path) -> None:
    socket = tmp_path / "p.sock"
    held: dict[str, dict[str, dict[str, list[str]]]] = {
        "ml/a": {"main": {"vramline.io/gpu": ["slot-0", "slot-1"], "example.com/nic": ["nic-3"]}, "side": {}},
        "ml/b": {},
    }

    async def ask() -> tuple[HeldDevice, ...]:
        async with serve_pod_resources(socket, held):
            return await list_held_devices(socket)

    found = asyncio.run(ask())

    assert [(each.pod_key, each.container, each.resource, each.device) for each in found] == [
        ("ml/a", "main", "vramline.io/gpu", "slot-0"),
        ("ml/a", "main", "vramline.io/gpu", "slot-1"),
        ("ml/a", "main", "example.com/nic", "nic-3"),
    ]


def test_a_kubelet_that_does_not_answer_is_a_failure_and_not_an_empty_list(tmp_path: Path) -> None:
    socket = tmp_path / "nobody.sock"

    with pytest.raises(TransientError, match=r"nobody\.sock: UNAVAILABLE"):
        asyncio.run(list_held_devices(socket))
