"""The page of one card: who holds it, whose processes are on it, and how it came to that."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from markupsafe import Markup

from vramline.dashboard.cluster_page import draw_card
from vramline.dashboard.markup import Templates
from vramline.dashboard.streams import Listing, Piece, Scene
from vramline.dashboard.viewers import NodeNames, Viewer
from vramline.dashboard.window import Window
from vramline.explain.cards import card_state
from vramline.explain.chronicle import CardEvent, CardSample, Span
from vramline.model.claim import Claim
from vramline.model.observation import GpuProcess, Observation, Unknown

__all__ = ["GpuPage", "series_of"]

_MOST_EVENTS = 50
_MOST_POINTS = 600


class _Holder(NamedTuple):
    """A claim, and what its pod was seen to use."""

    pod: str
    is_seen: bool
    mib: int
    used: int | None
    state: str
    started_at: float | None


class _Tenant(NamedTuple):
    """A process, and whose it is."""

    pid: str
    used: int | None
    owner: str
    pod: str
    """namespace/name, where it may be shown; empty: it may not, or there is none."""


class GpuPage:
    """Makes the page."""

    def __init__(self, window: Window, templates: Templates) -> None:
        self._window = window
        self._templates = templates

    async def make(self, viewer: Viewer, uuid: str) -> str | None:
        """Return the whole page; None: there is no such card."""
        events = await self._events_of(uuid)
        drawn = self._draw(viewer, uuid, events)
        gpu = self._window.cluster.fleet.gpu(uuid)
        if drawn is None or gpu is None:
            return None
        return self._templates.page(
            "gpu.html", viewer=viewer, now=self._window.cluster.now(), gpu=gpu, drawn=drawn
        )

    def follow(self, viewer: Viewer, uuid: str) -> Scene:
        """Return the page, without its curves, as a scene."""

        async def scene() -> AsyncIterator[Piece | Listing]:
            drawn = self._draw(viewer, uuid, await self._events_of(uuid))
            yield Piece("gpu", self._templates.part("gpu_gone", uuid) if drawn is None else drawn)

        return scene

    async def series(self, uuid: str, hours: int) -> dict[str, list[int | float | None]]:
        """Return what was used, held and unmanaged over the last hours, column by column, oldest first."""
        if self._window.chronicle is None:
            return series_of([], 0.0)
        now = self._window.cluster.now()
        span = Span(since=now - 3600.0 * hours, until=now, most=_MOST_POINTS)
        return series_of(await self._window.chronicle.samples(uuid, span), now)

    async def _events_of(self, uuid: str) -> list[CardEvent]:
        chronicle = self._window.chronicle
        return [] if chronicle is None else await chronicle.events(uuid, most=_MOST_EVENTS)

    def _draw(self, viewer: Viewer, uuid: str, events: list[CardEvent]) -> Markup | None:
        cluster = self._window.cluster
        gpu = cluster.fleet.gpu(uuid)
        if gpu is None:
            return None
        max_age_s, nodes = cluster.rules_for(None).max_age_s, NodeNames(cluster.fleet)
        card = card_state(cluster.fleet, uuid, now=cluster.now(), max_age_s=max_age_s)
        seen = cluster.fleet.observation(uuid)
        return self._templates.part(
            "gpu",
            card,
            gpu,
            draw_card(self._templates, card, viewer, nodes),
            [_holder(claim, seen, viewer) for claim in cluster.fleet.ledger.of_card(uuid)],
            self._tenants(seen, viewer),
            None if seen is None else seen.at,
            _temperature(seen),
            [(event.at, event.kind, viewer.told(event.text, nodes)) for event in events],
        )

    def _tenants(self, seen: Observation | None, viewer: Viewer) -> list[_Tenant] | None:
        if seen is None or isinstance(seen.processes, Unknown):
            return None
        found = [self._tenant(process, viewer) for process in seen.processes]
        return sorted(found, key=lambda each: -(each.used or 0))

    def _tenant(self, process: GpuProcess, viewer: Viewer) -> _Tenant:
        used = None if isinstance(process.used, Unknown) else int(process.used)
        if isinstance(process.pod_uid, Unknown):
            return _Tenant(str(process.pid), used, "not found out", "")
        if process.pod_uid is None:
            return _Tenant(str(process.pid), used, "nobody's: unmanaged", "")
        key = self._name_of(process.pod_uid)
        if key and not viewer.sees_pod(key):
            return _Tenant("—", used, viewer.pod(key), "")
        return _Tenant(str(process.pid), used, key or f"pod {process.pod_uid}, which is gone", key)

    def _name_of(self, uid: str) -> str:
        pod = self._window.cluster.pods.get(uid)
        if pod is not None:
            return pod.key
        claims = self._window.cluster.fleet.ledger.of_pod(uid)
        return claims[0].pod if claims else ""


def series_of(samples: list[CardSample], now: float) -> dict[str, list[int | float | None]]:
    """Turn samples into columns; the last one stands until now."""
    if samples:
        samples = [*samples, _copy_at(samples[-1], max(now, samples[-1].at))]
    return {
        "at": [sample.at for sample in samples],
        "usable": [sample.usable_mib for sample in samples],
        "held": [sample.held_mib for sample in samples],
        "used": [sample.used_mib for sample in samples],
        "unmanaged": [sample.unmanaged_mib for sample in samples],
    }


def _copy_at(sample: CardSample, at: float) -> CardSample:
    return CardSample(
        at=at,
        usable_mib=sample.usable_mib,
        held_mib=sample.held_mib,
        releasing_mib=sample.releasing_mib,
        unmanaged_mib=sample.unmanaged_mib,
        used_mib=sample.used_mib,
    )


def _holder(claim: Claim, seen: Observation | None, viewer: Viewer) -> _Holder:
    return _Holder(
        viewer.pod(claim.pod),
        viewer.sees_pod(claim.pod),
        claim.mib,
        _used_by(claim.pod_uid, seen),
        claim.state.value,
        claim.started_at,
    )


def _used_by(uid: str, seen: Observation | None) -> int | None:
    """Return what a pod's processes were seen to use; None: nobody can tell."""
    if seen is None or isinstance(seen.processes, Unknown):
        return None
    mine = [process.used for process in seen.processes if process.pod_uid == uid]
    return None if any(isinstance(used, Unknown) for used in mine) else sum(mine)  # type: ignore[arg-type]


def _temperature(seen: Observation | None) -> int | None:
    return None if seen is None or isinstance(seen.temperature_c, Unknown) else seen.temperature_c
