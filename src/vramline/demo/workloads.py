"""What people run in the demo: kinds of pods, and a seeded stream of them."""

import random

import msgspec

from vramline.model.ask import Ask, Constraints, MibSize, ShareSize, Size, UnsizedSize, WholeSize
from vramline.model.pod import HostNeeds, Pod
from vramline.units import Mib

__all__ = ["Workload", "make_workload"]

_GIB = 2**30


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of pod; the wider the range, the more the pods differ."""

    name: str
    weight: int
    mib: tuple[int, int] | None = None
    size: Size | None = None
    gpus: int = 1
    models: tuple[str, ...] = ()
    priority: int = 0
    stays_s: tuple[int, int]
    lingers_s: tuple[int, int] = (2, 6)


_KINDS = (
    _Kind(name="chat/llm-8b", weight=6, mib=(14_000, 22_000), priority=10, stays_s=(90, 240)),
    _Kind(name="chat/llm-70b", weight=2, mib=(38_000, 44_000), gpus=2, priority=10, stays_s=(120, 300)),
    _Kind(name="chat/whisper", weight=4, mib=(3_000, 6_000), priority=10, stays_s=(40, 120)),
    _Kind(name="vision/detector", weight=8, mib=(2_000, 8_000), stays_s=(30, 120)),
    _Kind(name="vision/sliced", weight=4, size=UnsizedSize(), models=("5090",), stays_s=(30, 90)),
    _Kind(name="edge/camera", weight=3, mib=(1_500, 6_000), models=("orin",), stays_s=(40, 120)),
    _Kind(name="batch/embed", weight=4, size=ShareSize(1, 4), stays_s=(30, 100)),
    _Kind(name="batch/train", weight=2, size=WholeSize(), models=("l40s",), stays_s=(60, 150)),
    _Kind(name="batch/finetune", weight=3, mib=(24_000, 60_000), stays_s=(60, 200), lingers_s=(15, 40)),
    _Kind(name="batch/toolarge", weight=1, mib=(90_000, 120_000), stays_s=(40, 60)),
)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A pod and what it will do once it runs."""

    pod: Pod
    stays_s: float
    """How long it runs, or waits before its owner gives up on it (three times that)."""
    lingers_s: float
    """How long its containers take to end once their deletion is asked for."""
    uses_percent: int
    """How much of its claim it allocates; above 100 it takes more than it was promised."""


def make_workload(dice: random.Random, number: int, *, now: float) -> Workload:
    """Return the next pod of the stream. The same dice give the same stream."""
    kind = dice.choices(_KINDS, weights=[kind.weight for kind in _KINDS])[0]
    namespace, stem = kind.name.split("/")
    name = f"{stem}-{number:03d}"
    size = kind.size or MibSize(Mib(dice.randrange(*kind.mib or (1, 2), 100)))
    uid = f"demo-{number:06d}"
    pod = Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        ask=Ask(
            pod=f"{namespace}/{name}",
            pod_uid=uid,
            gpus=kind.gpus,
            size=size,
            constraints=Constraints(use_models=kind.models),
        ),
        host=HostNeeds(cpu_milli=500, memory_bytes=_GIB),
        created_at=now,
        priority=kind.priority,
    )
    return Workload(
        pod=pod,
        stays_s=float(dice.randint(*kind.stays_s)),
        lingers_s=float(dice.randint(*kind.lingers_s)),
        uses_percent=dice.choice((60, 75, 85, 95, 100, 100, 104)),
    )
