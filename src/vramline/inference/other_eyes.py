"""Who else can say what is on the cards of nodes without an agent: this machine, exporters, pods with a GPU.

They are asked in that order, and only about nodes of which no fresh look is known. All of it is bounded: so
many questions at once, so long for each and for all; an answer, or none, counts for a while. Nodes of whom
nobody tells stay unknown.
"""

import asyncio
import functools
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import httpx
import msgspec

from vramline.errors import RequestError
from vramline.kube.failures import ApiError, DeniedError
from vramline.kube.objects import ObjectKey
from vramline.kube.pod_exec import PodExec
from vramline.kube.target import Target
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import Node
from vramline.model.observation import NOT_REPORTED, Observation, ObservationSource
from vramline.model.pod import Pod, PodPhase
from vramline.probes.choose import open_probes
from vramline.probes.device import DeviceReading, Failed, ProbeError
from vramline.probes.exporters import ExporterClient
from vramline.probes.options import ProbeOptions
from vramline.probes.smi import parse_cards
from vramline.settings import ObservationFeed, read_feeds
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.exporters import find_card

__all__ = ["LookKeeper", "OtherEyes", "Sources", "keeper_of"]

_AT_ONCE = 16
_ONE_S = 5.0
_ALL_S = 30.0
_KEEP_S = 15.0
_HERE = "this machine"
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu")
_COMMAND = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
_NO_PROCESSES = Failed("NOT_ASKED", "processes of a container are not those of the card")


class Watched(Protocol):
    """What must be known of a cluster to look at it, and where to put what was seen."""

    fleet: Fleet
    problems: list[str]

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod by UID."""
        ...

    def is_seen(self, uuid: str) -> bool:
        """Whether a fresh look at a card is known."""
        ...

    def device_container(self, pod_uid: str) -> str | None:
        """Return the name of the container that has the pod's GPUs."""
        ...

    def see(self, seen: Mapping[str, Observation]) -> None:
        """Take in looks at cards, by UUID."""
        ...


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to ask about nodes without an agent."""

    observations: str = ""
    """Exporters, as in the setting of this name: `prometheus=URL, dcgm=http://{node}:9400/metrics`."""
    enter_pods: bool = True
    """Whether to run nvidia-smi in running pods with GPUs; without the right to do so nothing happens."""
    this_machine: bool = True
    """Whether to read the cards of the node that this runs on."""


@dataclass(slots=True)
class LookKeeper:
    """Keeps answers for a while, also that there was none; the next question within that time asks nobody."""

    keep_s: float = _KEEP_S
    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, tuple[float, tuple[DeviceReading, ...], float]] = field(default_factory=dict)

    def recall(self, key: str) -> tuple[tuple[DeviceReading, ...], float] | None:
        """Return what was read, and when; None: nobody was asked lately."""
        kept = self._kept.get(key)
        if kept is None or self.clock() - kept[0] > self.keep_s:
            return None
        return kept[1], kept[2]

    def keep(self, key: str, readings: Iterable[DeviceReading], at: float) -> None:
        """Remember an answer, and forget those that are too old."""
        now = self.clock()
        self._kept = {name: kept for name, kept in self._kept.items() if now - kept[0] <= self.keep_s}
        self._kept[key] = (now, tuple(readings), at)


@functools.cache
def keeper_of(server: str) -> LookKeeper:
    """Return the one keeper of a cluster: the original's functions have no object that could hold it."""
    del server
    return LookKeeper()


class OtherEyes:
    """Looks at the cards of one cluster through others."""

    def __init__(
        self,
        cluster: Watched,
        target: Target,
        sources: Sources,
        *,
        keeper: LookKeeper | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        probes: ProbeOptions | None = None,
    ) -> None:
        """`transport` and `probes` are the network and this machine unless given."""
        self._cluster = cluster
        self._sources = sources
        self._feeds = _read_feeds(sources.observations)
        self._keeper = keeper or keeper_of(target.cluster.server)
        self._exec = PodExec(target)
        self._transport = transport
        self._probes = probes or ProbeOptions()
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._denied: set[str] = set()

    async def look(self) -> None:
        """Ask everybody about nodes that are dark; complaints become problems of the cluster."""
        try:
            async with asyncio.timeout(_ALL_S):
                if self._sources.this_machine:
                    await self._look_here()
                if self._feeds:
                    await self._ask_exporters()
                if self._sources.enter_pods:
                    await asyncio.gather(*(self._enter(pod, node) for pod, node in self._doors()))
        except TimeoutError:
            self._complain(f"other sources were not all asked within {_ALL_S:g} s")

    def _dark(self) -> list[Node]:
        """Return nodes with cards of which no fresh look is known."""
        seen = self._cluster.is_seen
        return [
            node
            for node in self._cluster.fleet.nodes
            if node.gpus and not any(seen(gpu.uuid) for gpu in node.gpus)
        ]

    # ── this machine ─────────────────────────────────────────────────────────────────────────────────

    async def _look_here(self) -> None:
        here = socket.gethostname()
        node = next((n for n in self._dark() if here in {n.name, n.labels.get(keys.HOSTNAME)}), None)
        if node is None:
            return
        kept = self._keeper.recall(_HERE)
        if kept is None:
            kept = await asyncio.to_thread(self._read_machine), time.time()
            self._keeper.keep(_HERE, *kept)
        self._show(node, *kept, ObservationSource.MACHINE)

    def _read_machine(self) -> tuple[DeviceReading, ...]:
        """Read every card of this machine through its driver's library, or through nvidia-smi."""
        readings: list[DeviceReading] = []
        opened = open_probes(self._probes)
        for probe in opened.probes:
            try:
                readings += probe.read()
            except ProbeError as error:
                self._complain(str(error))
            finally:
                probe.close()
        for closed in opened.errors:
            self._complain(str(closed))
        return tuple(readings)

    # ── exporters ────────────────────────────────────────────────────────────────────────────────────

    async def _ask_exporters(self) -> None:
        dark = {node.name for node in self._dark()}
        async with ExporterClient(time.time, transport=self._transport) as client:
            questions = [(feed, url) for feed in self._feeds for url in _urls_of(feed, sorted(dark))]
            await asyncio.gather(*(self._ask(client, feed, url, dark) for feed, url in questions))

    async def _ask(self, client: ExporterClient, feed: ObservationFeed, url: str, dark: set[str]) -> None:
        try:
            async with self._at_once:
                told = await client.ask(feed.source, url)
        except (httpx.HTTPError, RequestError) as error:
            self._complain(f"{feed.source} at {url}: {error}")
            return
        seen: dict[str, Observation] = {}
        for each in told:
            gpu = find_card(self._cluster.fleet, each.card)
            if gpu is not None and gpu.node in dark:
                seen[gpu.uuid] = each.card.observed(each.at, feed.source)
        self._cluster.see(seen)

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────

    def _doors(self) -> list[tuple[Pod, Node]]:
        """Return pods to enter: running ones that hold cards, no more of them than show another card."""
        dark = {node.name: node for node in self._dark()}
        shown: set[str] = set()
        doors = []
        for pod in sorted(self._cluster.pods.values(), key=lambda each: each.key):
            node = dark.get(pod.node or "")
            if node is None or pod.phase is not PodPhase.RUNNING or pod.ask is None:
                continue
            held = {claim.gpu for claim in self._cluster.fleet.ledger.of_pod(pod.uid)}
            if not held <= shown:
                shown |= held
                doors.append((pod, node))
        return doors

    async def _enter(self, pod: Pod, node: Node) -> None:
        kept = self._keeper.recall(pod.uid)
        if kept is None:
            readings, at = await self._read_in(pod), time.time()
            self._keeper.keep(pod.uid, readings, at)
        else:
            readings, at = kept
        self._show(node, readings, at, ObservationSource.POD, pod)

    async def _read_in(self, pod: Pod) -> tuple[DeviceReading, ...]:
        container = self._cluster.device_container(pod.uid)
        async with self._at_once:
            if pod.namespace in self._denied or container is None:
                return ()
            try:
                done = await self._exec.run(
                    ObjectKey(pod.name, pod.namespace), container, _COMMAND, timeout_s=_ONE_S
                )
            except DeniedError as error:
                self._denied.add(pod.namespace)
                self._complain(str(error))
                return ()
            except ApiError as error:
                self._complain(str(error))
                return ()
        found = parse_cards(done.output, _FIELDS, _NO_PROCESSES) if done.code == 0 else None
        if isinstance(found, list):
            return tuple(found)
        said = found.detail if isinstance(found, Failed) else " ".join(done.errors.split())[:200]
        self._complain(f"nvidia-smi in pod {pod.key}: {said or f'ended with {done.code}'}")
        return ()

    # ── what was seen ────────────────────────────────────────────────────────────────────────────────

    def _show(
        self,
        node: Node,
        readings: Iterable[DeviceReading],
        at: float,
        source: ObservationSource,
        pod: Pod | None = None,
    ) -> None:
        listed = list(readings)
        held = () if pod is None else self._cluster.fleet.ledger.of_pod(pod.uid)
        cards = match_cards(node, listed, [claim.gpu for claim in held])
        self._cluster.see({uuid: _observe(reading, at, source) for uuid, reading in cards.items()})

    def _complain(self, problem: str) -> None:
        self._cluster.problems.append(problem)


def match_cards(node: Node, readings: list[DeviceReading], held: list[str]) -> dict[str, DeviceReading]:
    """Return which of a node's cards each reading is of: by UUID; else by place, where all cards are shown.

    A container numbers what it sees from 0, so its first card may be any. Where UUIDs are not known, the
    cards that a pod sees are those that the books give it (`held`), if they are as many.
    """
    known = {gpu.uuid: gpu for gpu in node.gpus}
    by_uuid = {each.uuid: each for each in readings if isinstance(each.uuid, str) and each.uuid in known}
    if by_uuid:
        return by_uuid
    ordered = sorted(readings, key=lambda each: each.index if isinstance(each.index, int) else 0)
    places: list[PhysicalGpu] = sorted(node.gpus, key=lambda gpu: gpu.index)
    if len(ordered) != len(places):
        places = [gpu for gpu in places if gpu.uuid in held]
    if len(ordered) != len(places) or any(gpu.uuid.startswith("GPU-") for gpu in places):
        return {}  # UUIDs are known, and these are others: not this node's cards
    return {gpu.uuid: each for gpu, each in zip(places, ordered, strict=True)}


def _observe(reading: DeviceReading, at: float, source: ObservationSource) -> Observation:
    used, busy, warm = reading.used, reading.utilization_percent, reading.temperature_c
    return Observation(
        at=at,
        used=Mib(used) if isinstance(used, int) else NOT_REPORTED,
        utilization_percent=busy if isinstance(busy, int) else NOT_REPORTED,
        temperature_c=warm if isinstance(warm, int) else NOT_REPORTED,
        source=source,
    )


def _urls_of(feed: ObservationFeed, nodes: list[str]) -> list[str]:
    if "{node}" not in feed.url:
        return [feed.url] if nodes else []
    return [feed.url.replace("{node}", node) for node in nodes]


def _read_feeds(text: str) -> tuple[ObservationFeed, ...]:
    try:
        return read_feeds(text)
    except ValueError as error:
        raise RequestError(
            subject="sources",
            field="observations",
            value=text,
            problem=str(error),
            accepted="prometheus=URL, dcgm=URL, hami=URL",
        ) from None
