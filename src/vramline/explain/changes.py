"""The kinds of change that a counterfactual can be: how each is said, and how it is made on copies."""

from dataclasses import dataclass, replace
from typing import assert_never

import msgspec

from vramline.decide.whatif import copy_with_card_uncordoned, copy_without_pods
from vramline.explain.text import join_names
from vramline.model.ask import Ask, MibSize, RealtimeMode
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules
from vramline.units import Mib, format_mib

__all__ = [
    "Change",
    "End",
    "FewerGpus",
    "LeavingPod",
    "Release",
    "SmallerAsk",
    "SwitchMode",
    "UncordonGpu",
    "WhatIf",
    "make_change",
    "say_change",
]


class LeavingPod(msgspec.Struct, frozen=True):
    """A pod that leaves a node, and what it claims there until then."""

    pod: str
    pod_uid: str
    mib: int


class Release(msgspec.Struct, frozen=True, tag_field="kind", tag="Release"):
    """Pods that are ending have let go of their memory."""

    pods: tuple[LeavingPod, ...]


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="End"):
    """A pod that nobody has asked to go has ended, and its memory is free."""

    pod: LeavingPod


class SwitchMode(msgspec.Struct, frozen=True, tag_field="kind", tag="SwitchMode"):
    """Another mode of the real-time check."""

    mode: RealtimeMode


class SmallerAsk(msgspec.Struct, frozen=True, tag_field="kind", tag="SmallerAsk"):
    """Less memory on each GPU: `ask_mib` is the most that fits, one MiB more does not."""

    ask_mib: int


class FewerGpus(msgspec.Struct, frozen=True, tag_field="kind", tag="FewerGpus"):
    """As many GPUs as one node has for this ask."""

    gpus: int


class UncordonGpu(msgspec.Struct, frozen=True, tag_field="kind", tag="UncordonGpu"):
    """A card is in service again."""

    uuid: str


Change = Release | End | SwitchMode | SmallerAsk | FewerGpus | UncordonGpu


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The input of a decision. After a change of cards or pods, `fleet` is a copy of one node."""

    fleet: Fleet
    ask: Ask
    rules: Rules


def say_change(change: Change, ask: Ask) -> str:
    """Say a change of what was asked, to follow "fits on n1"."""
    match change:
        case Release(pods):
            names, verb = join_names([pod.pod for pod in pods]), "has" if len(pods) == 1 else "have"
            return f"when {names} {verb} released {format_mib(sum(pod.mib for pod in pods))}"
        case End(pod):
            return f"if {pod.pod} ends"
        case SwitchMode(mode):
            return f"with realtime {mode}"
        case SmallerAsk(ask_mib):
            return f"if the ask is ≤ {format_mib(ask_mib)}" + (" on each GPU" if ask.gpus > 1 else "")
        case FewerGpus(gpus):
            return f"with {gpus} {'GPU' if gpus == 1 else 'GPUs'} instead of {ask.gpus}"
        case UncordonGpu(uuid):
            return f"if {uuid} is uncordoned"
        case _:
            assert_never(change)


def make_change(change: Change, world: WhatIf, node: str) -> WhatIf:
    """Return the world in which the change is made; `world` stays as it is."""
    match change:
        case Release(pods):
            return replace(world, fleet=copy_without_pods(world.fleet, node, [pod.pod_uid for pod in pods]))
        case End(pod):
            return replace(world, fleet=copy_without_pods(world.fleet, node, [pod.pod_uid]))
        case SwitchMode(mode):
            return replace(world, rules=msgspec.structs.replace(world.rules, mode=mode))
        case SmallerAsk(ask_mib):
            return replace(world, ask=msgspec.structs.replace(world.ask, size=MibSize(Mib(ask_mib))))
        case FewerGpus(gpus):
            return replace(world, ask=msgspec.structs.replace(world.ask, gpus=gpus))
        case UncordonGpu(uuid):
            return replace(world, fleet=copy_with_card_uncordoned(world.fleet, node, uuid))
        case _:
            assert_never(change)
