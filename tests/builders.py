"""Short ways to say "a node with two cards, one of them half full", so that a case is one line.

Amounts are plain integers in MiB. Everything has a default that a test does not have to care about.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from vramline.model.ask import Ask, Constraints, MibSize, Size
from vramline.model.claim import Claim
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import NOT_REPORTED, GpuProcess, Observation, Unknown
from vramline.units import Mib

__all__ = ["ask", "claim", "fleet_of", "gpu", "node", "observation", "process", "uid_of"]


def gpu(uuid: str = "GPU-a", total: int = 32_600, **fields: Any) -> PhysicalGpu:
    """One card; `node` tells it where it is."""
    return PhysicalGpu(uuid=uuid, node=fields.pop("node", ""), total=Mib(total), **fields)


def node(name: str = "n1", *gpus: PhysicalGpu, **fields: Any) -> Node:
    """One machine that owns `gpus`, numbered as they are listed."""
    owned = (msgspec.structs.replace(card, node=name, index=index) for index, card in enumerate(gpus))
    return Node(name=name, gpus=tuple(owned), **fields)


def fleet_of(
    *nodes: Node,
    claims: Iterable[Claim] = (),
    observations: dict[str, Observation] | None = None,
    margin: int = 100,
) -> Fleet:
    """A fleet of these nodes, in which these claims exist already and these cards were looked at."""
    fleet = Fleet(Mib(margin))
    for member in nodes:
        fleet.set_node(member)
    fleet.adopt(claims)
    for uuid, seen in (observations or {}).items():
        fleet.observe(uuid, seen)
    return fleet


def ask(size: int | Size = 8_000, *, gpus: int = 1, pod: str = "ns/new", **fields: Any) -> Ask:
    """What a pod wants; a plain number is MiB on each card; constraints are given flat."""
    wishes = {key: fields.pop(key) for key in Constraints.__struct_fields__ if key in fields}
    fields.setdefault("pod_uid", uid_of(pod))
    fields.setdefault("constraints", Constraints(**wishes))
    return Ask(pod=pod, gpus=gpus, size=MibSize(Mib(size)) if isinstance(size, int) else size, **fields)


def claim(mib: int, pod: str = "ns/other", *, gpu: str = "GPU-a", **fields: Any) -> Claim:
    """What the ledger holds for `pod` on one card; reserved, unless `state` says otherwise."""
    fields.setdefault("pod_uid", uid_of(pod))
    return Claim(pod=pod, gpu=gpu, mib=Mib(mib), **fields)


def process(used: int | None = None, pod: str | Unknown | None = None, pid: int = 1) -> GpuProcess:
    """A process of `pod` (None: nobody's) that holds `used` MiB (None: the card does not tell)."""
    return GpuProcess(
        pid=pid,
        used=NOT_REPORTED if used is None else Mib(used),
        pod_uid=uid_of(pod) if isinstance(pod, str) else pod,
    )


def observation(
    used: int | None = None, *processes: GpuProcess, at: float = 100.0, listed: bool = True, **fields: Any
) -> Observation:
    """A look at a card that listed exactly `processes`; `listed=False`: it has no such list."""
    return Observation(
        at=at,
        used=NOT_REPORTED if used is None else Mib(used),
        processes=processes if listed else NOT_REPORTED,
        **fields,
    )


def uid_of(pod: str) -> str:
    """The UID that the other builders give a pod."""
    return f"uid-{pod}"
