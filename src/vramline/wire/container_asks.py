"""What each container asks of GPUs through its limits, and what that makes for the whole pod.

All containers of a pod see all its GPUs, because one annotation becomes `NVIDIA_VISIBLE_DEVICES` in every
one of them. So what runs together adds up on the same cards, and what runs before takes the maximum
(`stages`).
"""

import enum
from collections.abc import Iterable, Mapping

import msgspec

from vramline.errors import RequestError
from vramline.units import MAX_MIB
from vramline.wire import keys
from vramline.wire.kubernetes import Container, PodSpec
from vramline.wire.quantities import read_mib_count, read_whole
from vramline.wire.stages import list_containers, list_stages

__all__ = [
    "MAX_COUNT",
    "ContainerAsk",
    "PodTotal",
    "SizeKind",
    "add_up",
    "name_container",
    "read_container_asks",
]

MAX_COUNT = 65_535
"""Most GPUs that limits may ask for; more is a typing error."""

_RESOURCES = frozenset(
    {
        keys.GPU_COUNT,
        keys.GPU_COUNT_SHARED,
        keys.GPU_MEMORY_MIB,
        keys.GPU_MEMORY_PERCENT,
        keys.GPU_CORES,
        keys.GPU_PRIORITY,
    }
)
_MISPLACED = (keys.KAI_MEMORY, keys.KAI_FRACTION, keys.VRAM, keys.GPUS)
"""Annotations that are easily written among the limits by mistake."""


class SizeKind(enum.StrEnum):
    """In what unit a container says how much it wants of each card."""

    MIB = "MiB"
    PERCENT = "a percentage"
    UNSIZED = "a number of GPUs"


class ContainerAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What one container wants of each of `count` GPUs."""

    container: str
    kind: SizeKind
    count: int = 1
    counted: bool = False
    """Whether the count was written, rather than implied by another resource."""
    amount: int = 0
    cores: int = 0


class PodTotal(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod's containers want together: `amount` and `cores` on each of `count` cards."""

    kind: SizeKind
    count: int
    counted: bool
    amount: int
    cores: int


def name_container(container: Container, position: int) -> str:
    """Return how messages call a container."""
    return container.name or f"number {position + 1}"


def read_container_asks(spec: PodSpec, subject: str) -> list[ContainerAsk | None]:
    """Read the limits of every container, in the order of `stages.list_containers`."""
    return [
        _read_container(name_container(container, position), _merge(container), subject)
        for position, container in enumerate(list_containers(spec))
    ]


def add_up(spec: PodSpec, asks: Iterable[ContainerAsk | None], subject: str, *, same_cards: bool) -> PodTotal:
    """Return what the pod needs at its neediest moment; at least one of `asks` is not None.

    `same_cards`: an annotation gives the size, so that containers without a size of their own share cards
    all the same and their cores add.
    """
    stages = [[ask for ask in stage if ask is not None] for stage in list_stages(spec, asks)]
    everyone = [ask for stage in stages for ask in stage]
    _refuse_mixed_kinds(everyone, subject)
    totals = [_total(stage, subject, same_cards=same_cards) for stage in stages if stage]
    return PodTotal(
        kind=everyone[0].kind,
        count=max(total.count for total in totals),
        counted=any(total.counted for total in totals),
        amount=max(total.amount for total in totals),
        cores=max(total.cores for total in totals),
    )


def _merge(container: Container) -> Mapping[str, str | int | float]:
    """Limits win over requests, as for every resource that cannot be over-committed."""
    needs = container.resources
    if needs is None:
        return {}
    return {**(needs.requests or {}), **(needs.limits or {})}


def _read_container(name: str, amounts: Mapping[str, str | int | float], subject: str) -> ContainerAsk | None:
    for key in _MISPLACED:
        if key in amounts:
            raise RequestError(
                subject=subject,
                field=f"container {name}: {key}",
                problem="is an annotation, not a resource",
                accepted=f"{key} among the annotations of the pod",
            )
    if _RESOURCES.isdisjoint(amounts):
        return None
    count = _read_count(name, amounts, subject)
    mib = _read_mib(name, amounts, subject)
    percent = _read_number(name, amounts, keys.GPU_MEMORY_PERCENT, 100, subject)
    cores = _read_number(name, amounts, keys.GPU_CORES, 100, subject) or 0
    _read_number(name, amounts, keys.GPU_PRIORITY, 1, subject)
    if mib and percent:
        raise RequestError(
            subject=subject,
            field=f"container {name}: {keys.GPU_MEMORY_MIB} and {keys.GPU_MEMORY_PERCENT}",
            problem="both ask for memory",
            accepted="one of them",
        )
    if not (count or mib or percent or cores):
        return None
    if count == 0:
        _refuse_zero(name, subject)
    return ContainerAsk(
        container=name,
        kind=SizeKind.MIB if mib else SizeKind.PERCENT if percent else SizeKind.UNSIZED,
        count=1 if count is None else count,
        counted=count is not None,
        amount=mib or percent or 0,
        cores=cores,
    )


def _read_count(name: str, amounts: Mapping[str, str | int | float], subject: str) -> int | None:
    plain = _read_number(name, amounts, keys.GPU_COUNT, MAX_COUNT, subject)
    shared = _read_number(name, amounts, keys.GPU_COUNT_SHARED, MAX_COUNT, subject)
    if plain and shared:
        raise RequestError(
            subject=subject,
            field=f"container {name}: {keys.GPU_COUNT} and {keys.GPU_COUNT_SHARED}",
            problem="are two names of one resource",
            accepted="one of them",
        )
    given = [count for count in (plain, shared) if count is not None]
    return sum(given) if given else None


def _read_mib(name: str, amounts: Mapping[str, str | int | float], subject: str) -> int | None:
    value = amounts.get(keys.GPU_MEMORY_MIB)
    if value is None:
        return None
    return read_mib_count(value, subject=subject, field=f"container {name}: {keys.GPU_MEMORY_MIB}")


def _read_number(
    name: str, amounts: Mapping[str, str | int | float], key: str, high: int, subject: str
) -> int | None:
    value = amounts.get(key)
    if value is None:
        return None
    return read_whole(value, subject=subject, field=f"container {name}: {key}", low=0, high=high)


def _refuse_zero(name: str, subject: str) -> None:
    raise RequestError(
        subject=subject,
        field=f"container {name}: {keys.GPU_COUNT}",
        value=0,
        problem="contradicts the GPU memory or cores that the same container asks for",
        accepted=f"{keys.GPU_COUNT}: 1 or more, or none of them",
    )


def _refuse_mixed_kinds(asks: list[ContainerAsk], subject: str) -> None:
    first = asks[0]
    for other in asks:
        if other.kind is not first.kind:
            raise RequestError(
                subject=subject,
                field=f"containers {first.container} and {other.container}",
                problem=f"ask for {first.kind.value} and for {other.kind.value}, which do not add up",
                accepted=f"the same of {keys.GPU_MEMORY_MIB}, {keys.GPU_MEMORY_PERCENT} or plain"
                f" {keys.GPU_COUNT} in both",
            )


def _total(stage: list[ContainerAsk], subject: str, *, same_cards: bool) -> PodTotal:
    """Add what runs together: sizes on the same cards, or, where no size is given, the cards themselves."""
    kind = stage[0].kind
    unsized = kind is SizeKind.UNSIZED
    counts = [ask.count for ask in stage]
    cores = [ask.cores for ask in stage]
    total = PodTotal(
        kind=kind,
        count=sum(counts) if unsized else max(counts),
        counted=any(ask.counted for ask in stage),
        amount=sum(ask.amount for ask in stage),
        cores=max(cores) if unsized and not same_cards else sum(cores),
    )
    most = 100 if kind is SizeKind.PERCENT else MAX_MIB
    names = " and ".join(ask.container for ask in stage)
    if total.amount > most:
        key = keys.GPU_MEMORY_PERCENT if kind is SizeKind.PERCENT else keys.GPU_MEMORY_MIB
        raise _too_much(names, key, total.amount, most, subject)
    if total.cores > 100:
        raise _too_much(names, keys.GPU_CORES, total.cores, 100, subject)
    return total


def _too_much(names: str, key: str, amount: int, most: int, subject: str) -> RequestError:
    return RequestError(
        subject=subject,
        field=f"containers {names}: {key}",
        value=amount,
        problem="is more than one GPU has, added up over the containers that run together",
        accepted=f"at most {most}",
    )
