"""The machines of the demo: four kinds, unlike on purpose, repeated as often as nodes are wanted."""

from vramline.errors import RequestError
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import HostRoom, InventorySource, Node
from vramline.units import Mib

__all__ = ["MAX_NODES", "build_nodes"]

MAX_NODES = 1_000

_HOST = HostRoom(cpu_milli=64_000, memory_bytes=512 * 2**30, pods=110)


def build_nodes(count: int) -> list[Node]:
    """Return `count` nodes: large cards, middling cards, one time-sliced card, one board; then again."""
    if not 1 <= count <= MAX_NODES:
        raise RequestError(
            subject="demo", field="--nodes", value=count, problem="cannot be", accepted=f"1 to {MAX_NODES}"
        )
    kinds = (_h100, _l40s, _time_sliced, _orin)
    return [kinds[i % len(kinds)](f"n{i + 1}", f"{i + 1:02x}") for i in range(count)]


def _h100(name: str, tag: str) -> Node:
    gpus = _cards(name, f"GPU-h100-{tag}", 2, model="NVIDIA H100 80GB HBM3", total=Mib(81_559))
    return Node(name=name, gpus=gpus, source=InventorySource.REPORT, advertised=2, host=_HOST, platform="x86")


def _l40s(name: str, tag: str) -> Node:
    gpus = _cards(name, f"GPU-l40s-{tag}", 4, model="NVIDIA L40S", total=Mib(46_068))
    return Node(name=name, gpus=gpus, source=InventorySource.REPORT, advertised=4, host=_HOST, platform="x86")


def _time_sliced(name: str, tag: str) -> Node:
    """One card that kubelet advertises a hundred times. It still has 32,600 MiB."""
    card = PhysicalGpu(
        uuid=f"GPU-5090-{tag}0",
        node=name,
        model="NVIDIA GeForce RTX 5090",
        total=Mib(32_600),
        reserved=Mib(0),
        slots=100,
    )
    return Node(
        name=name, gpus=(card,), source=InventorySource.REPORT, advertised=100, host=_HOST, platform="x86"
    )


def _orin(name: str, tag: str) -> Node:
    """A board whose GPU shares the host's memory and lists no processes."""
    board = PhysicalGpu(
        uuid=f"GPU-orin-{tag}0",
        node=name,
        model="NVIDIA Jetson AGX Orin",
        total=Mib(30_536),
        unified=True,
    )
    host = HostRoom(cpu_milli=12_000, memory_bytes=30 * 2**30, pods=110)
    return Node(
        name=name, gpus=(board,), source=InventorySource.REPORT, advertised=1, host=host, platform="tegra"
    )


def _cards(node: str, uuid: str, count: int, *, model: str, total: Mib) -> tuple[PhysicalGpu, ...]:
    return tuple(
        PhysicalGpu(
            uuid=f"{uuid}{i}",
            node=node,
            index=i,
            model=model,
            total=total,
            reserved=Mib(550),
            numa=i * 2 // count,
        )
        for i in range(count)
    )
