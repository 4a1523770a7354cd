"""What kubelet says of devices and pods, over its socket."""

import asyncio
from pathlib import Path

import pytest

from agent.stand_in_kubelet import serve_pod_resources
from vramline.agent.pod_resources import HeldDevice, list_devices, list_held_devices
from vramline.agent.replicas import count_replicas
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


def test_replicas_of_a_card_are_counted_from_what_kubelet_could_hand_out(tmp_path: Path) -> None:
    socket = tmp_path / "p.sock"
    sliced = {
        "nvidia.com/gpu": ["GPU-a::0", "GPU-a::1", "GPU-a::2", "GPU-b"],
        "nvidia.com/mig-1g.5gb": ["MIG-1", "MIG-2"],
        "vramline.io/gpu": ["slot-0"],
    }

    async def ask() -> tuple[tuple[str, str], ...]:
        async with serve_pod_resources(socket, {}, sliced):
            return await list_devices(socket)

    assert count_replicas(asyncio.run(ask())) == {"GPU-a": 3, "GPU-b": 1}


def test_a_renamed_resource_of_shared_cards_counts_too() -> None:
    assert count_replicas([("nvidia.com/gpu.shared", f"GPU-a::{number}") for number in range(4)]) == {
        "GPU-a": 4
    }
