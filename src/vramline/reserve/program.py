"""From start to waiting: which card is it, and the word about it onto the pod."""

import asyncio

from vramline.kube.objects import ObjectKey
from vramline.kube.target import Target
from vramline.probes.only_card import OnlyCard, read_only_card
from vramline.probes.options import ProbeOptions
from vramline.reserve.lines import Say
from vramline.reserve.own_pod import write_card

__all__ = ["find_card", "tell_own_pod"]

_WRITE_WITHIN_S = 30.0


def find_card(options: ProbeOptions, say: Say, **pod: str) -> OnlyCard:
    """Return the card that this container sees. Raises `ProbeError`."""
    say("Looking for GPU device id for pod", **pod)
    card = read_only_card(options, counted=lambda count: say(f"Found {count} GPU devices"))
    say("Found GPU device", deviceId=card.uuid, library=card.library)
    return card


def tell_own_pod(card: OnlyCard, target: Target, pod: ObjectKey, say: Say) -> None:
    """Write it onto the pod. Raises `ApiError`."""
    asyncio.run(write_card(target, pod, card.uuid, within_s=_WRITE_WITHIN_S))
    say("Pod was updated with GPU device UUID", deviceId=card.uuid)
