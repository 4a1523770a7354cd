"""How much of each GPU a service claims, and the engine's flags that make the claim true.

What a fraction of memory means depends on the card, so there is one size for every kind of card that could
hold the service; a service is made for one of them.
"""

import math

import msgspec

from vramline.errors import RequestError
from vramline.inference.caches import Engine
from vramline.inference.card_kinds import CardKind
from vramline.inference.estimate import Model, Plan, estimate
from vramline.units import format_mib

__all__ = ["Sizing", "parallel_flags", "size_by_memory", "size_by_model"]

_BESIDE_MIB = {Engine.VLLM: 2_560, Engine.SGLANG: 4_608}
"""What an engine takes at most beside the part that its fraction rules: the driver's context, CUDA graphs
and, with SGLang, activations of a prefill chunk."""


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """A claim on each GPU of one kind, and the flags under which the engine keeps to it."""

    mib: int
    kind: CardKind
    flags: tuple[str, ...] = ()


def size_by_model(model: Model, plan: Plan, kinds: list[CardKind]) -> list[Sizing]:
    """Return the high figure of an estimate for every kind of card that holds it, smallest cards first."""
    found: list[Sizing] = []
    least: int | None = None
    for kind in sorted(kinds):
        card = msgspec.structs.replace(plan, card_mib=kind.total_mib, card_model=kind.model)
        needed = estimate(model, card)
        mib = needed.per_gpu.high
        least = mib if least is None else min(least, mib)
        if mib <= kind.total_mib:
            found.append(Sizing(mib=mib, kind=kind, flags=needed.flags))
    if not found and least is not None:
        largest = max(kinds).total_mib
        raise RequestError(
            subject=model.name,
            field="GPUs",
            value=plan.tp * plan.pp,
            problem=f"needs {format_mib(least)} on each; the largest card has {format_mib(largest)}",
            accepted="more GPUs, a shorter context or a smaller type; `vramline fit` tells what would help",
        )
    return found


def size_by_memory(mib: int, engine: str, kinds: list[CardKind]) -> list[Sizing]:
    """Return so many MiB as a claim, for every kind of card that has them; `engine` empty: nobody knows."""
    found = []
    for kind in sorted(kinds):
        if mib <= kind.total_mib:
            flags = (_fraction_flag(mib, Engine(engine), kind),) if engine else ()
            found.append(Sizing(mib=mib, kind=kind, flags=flags))
    if kinds and not found:
        raise RequestError(
            subject="deploy",
            field="gpu_memory",
            value=mib,
            problem=f"is more than the largest card has, {format_mib(max(kinds).total_mib)}",
        )
    return found


def parallel_flags(engine: str, tp: int) -> tuple[str, ...]:
    """Return the flag that has an engine use so many GPUs; empty where nobody knows the engine."""
    match engine:
        case Engine.VLLM:
            return (f"--tensor-parallel-size={tp}",)
        case Engine.SGLANG:
            return (f"--tp-size={tp}",)
        case _:
            return ()


def _fraction_flag(mib: int, engine: Engine, kind: CardKind) -> str:
    """Return the largest fraction at which the engine stays within a claim, whatever the model.

    >>> _fraction_flag(20480, Engine.VLLM, CardKind(81559, "H100"))
    '--gpu-memory-utilization=0.219'
    """
    rest = mib - _BESIDE_MIB[engine]
    if rest <= 0:
        raise RequestError(
            subject="deploy",
            field="gpu_memory",
            value=mib,
            problem=f"is less than {engine.value} may take beside weights and cache",
            accepted=f"more than {_BESIDE_MIB[engine]} MiB",
        )
    name = "--gpu-memory-utilization" if engine is Engine.VLLM else "--mem-fraction-static"
    return f"{name}={math.floor(rest / kind.total_mib * 1000) / 1000}"
