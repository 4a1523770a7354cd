"""The last look: whether a container that kubelet is about to start finds the memory promised to its pod.

kubelet asks with slots alone. Whose they are is kubelet's own word again, over its pod resources socket: a
slot is listed there from the admission of its pod on, which is before any container starts. What the pod was
promised stands in the node's ledger, and was written there before the pod was bound.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import msgspec
import structlog

from vramline.agent.pod_resources import HeldDevice
from vramline.decide.starting import Judgement, SeenCard, judge_start
from vramline.errors import VramlineError
from vramline.explain.starting import explain_shortfall
from vramline.model.ask import RealtimeMode
from vramline.model.claim import Claim
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.cards import cards_by_report
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.report_v1alpha1 import GpuReport, observe
from vramline.wire.uuids import card_of

__all__ = ["CheckOptions", "NodeSources", "StartCheck"]

_PATIENCE_S = 10.0
"""For everything that one check asks of others. kubelet waits 30 seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSources:
    """Where the plugin learns about its node. What cannot be answered now is raised as a `VramlineError`."""

    node: str
    newest: Callable[[], GpuReport | None]
    """The newest sample; None: none was taken yet."""
    look: Callable[[Collection[str]], Awaitable[GpuReport]]
    """A look at these cards, now; or the last one, which is as old as it says."""
    ledger: Callable[[], Awaitable[GpuLedger | None]]
    """The node's ledger as it is stored; None: it has none."""
    held_devices: Callable[[], Awaitable[Collection[HeldDevice]]]
    """kubelet's pod resources."""
    clock: Callable[[], float]
    """Seconds since the epoch, as reports count them."""
    starts: Counter[str]
    """Counts looks: agreed, short (said so and agreed), refused, unseen."""


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How strict the last look is, beyond the mode in which each claim was promised."""

    margin: Mib
    """Memory that no listed process holds, up to this much, is the driver's and nobody's."""
    max_age_s: float
    """A look that is older does not count."""
    refuses_unseen: bool
    """Whether a container waits when its cards or its promise cannot be looked at."""


class StartCheck:
    """Judges starts. Never takes longer than kubelet waits, never fails: no answer is an answer too."""

    def __init__(self, sources: NodeSources, options: CheckOptions) -> None:
        self._sources = sources
        self._options = options
        self._log = structlog.get_logger().bind(node=sources.node)

    async def refusal(self, slots: Collection[str], *, has_run: bool) -> str:
        """Return why the container that holds `slots` must wait; empty: it may start."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                pod = await self._find_pod(slots)
                claims = await self._read_claims()
                own = [claim for claim in claims if claim.pod == pod]
                if not own:
                    return self._refuse(pod, self._not_promised(pod))
                if all(claim.mode is RealtimeMode.DISABLED for claim in own):
                    return self._agree()
                cards = await self._look({claim.gpu for claim in own})
        except (VramlineError, TimeoutError) as error:
            why = str(error) or f"no answer within {_PATIENCE_S:.0f} s"
            return self._unseen(", ".join(slots), why)
        judged = judge_start(pod, claims, cards, margin=self._options.margin, has_run=has_run)
        return self._conclude(pod, judged)

    async def _find_pod(self, slots: Collection[str]) -> str:
        held = await self._sources.held_devices()
        pods = {each.pod_key for each in held if each.resource == keys.SLOT and each.device in slots}
        if len(pods) != 1:
            listed = f"lists it for {len(pods)} pods" if pods else "does not list it"
            raise VramlineError(f"nobody knows whose {', '.join(sorted(slots))} is: kubelet {listed}")
        return pods.pop()

    async def _read_claims(self) -> tuple[Claim, ...]:
        ledger = await self._sources.ledger()
        return () if ledger is None else ledger.claims

    async def _look(self, gpus: Collection[str]) -> dict[str, SeenCard]:
        report = await self._sources.look(gpus)
        at = report.observed_at
        is_fresh = at is not None and at >= self._sources.clock() - self._options.max_age_s
        inventory = cards_by_report(report, self._sources.node)
        seen = {
            card_of(gpu.uuid): observe(gpu, at)
            for gpu in report.gpus or ()
            if is_fresh and at is not None and gpu.uuid is not None
        }
        cards = () if inventory is None else inventory.cards
        return {card.uuid: SeenCard(card, seen.get(card.uuid)) for card in cards}

    def _conclude(self, pod: str, judged: Judgement) -> str:
        """Turn what the cards say into an answer: a claim's own mode decides what a shortfall means."""
        warned, strict = judged.only(RealtimeMode.WARNING), judged.only(RealtimeMode.STRICT)
        for each in warned.short:
            self._log.warning("start.short", pod=pod, detail=explain_shortfall(each))
        if strict.short:
            return self._refuse(pod, "; ".join(explain_shortfall(each) for each in strict.short))
        if strict.unseen:
            gpus = ", ".join(claim.gpu for claim in strict.unseen)
            return self._unseen(pod, f"{gpus} did not tell how much is in use")
        return self._agree("short" if warned.short else "agreed")

    def _not_promised(self, pod: str) -> str:
        return (
            f"the ledger of {self._sources.node} promises no memory to {pod}: it was not placed by Vramline."
            f" Remove {keys.SLOT} from its limits, or let Vramline's scheduler place it"
        )

    def _agree(self, outcome: str = "agreed") -> str:
        self._sources.starts[outcome] += 1
        return ""

    def _refuse(self, pod: str, why: str) -> str:
        self._sources.starts["refused"] += 1
        self._log.warning("start.refused", pod=pod, detail=why)
        return why

    def _unseen(self, subject: str, why: str) -> str:
        self._sources.starts["unseen"] += 1
        refuses = self._options.refuses_unseen
        self._log.warning("start.unseen", subject=subject, detail=why, refused=refuses)
        return f"not looked at: {why}" if refuses else ""
