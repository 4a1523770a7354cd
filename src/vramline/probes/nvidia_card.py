"""One look at one NVIDIA card: what changes is asked every time, what does not once for a UUID."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from vramline.probes import unified
from vramline.probes.device import (
    Answer,
    DeviceReading,
    Failed,
    Link,
    MemorySource,
    Unsupported,
    Vendor,
)
from vramline.probes.nvml import Handle, Memory, Questions, is_unified
from vramline.probes.unanswered import unanswered
from vramline.units import Mib

__all__ = ["CardReader", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """A card as it was enumerated."""

    index: int
    handle: Handle | Failed


class _Facts(NamedTuple):
    """What of a card does not change."""

    model: Answer[str]
    physical_id: Answer[str]
    unified: bool
    numa: Answer[int]
    memory_numa: Answer[int]
    links: tuple[Link, ...]
    peers: tuple[str, ...]

    def holds_for(self, peers: tuple[str, ...]) -> bool:
        """Whether nothing needs to be asked again."""
        answers: list[object] = [self.model, self.physical_id, self.numa, self.memory_numa]
        answers += [answer for link in self.links for answer in (link.nvlink, link.ancestor)]
        return self.peers == peers and not any(isinstance(each, Failed) for each in answers)


class CardReader:
    """Reads cards, one at a time or several from different threads."""

    def __init__(self, *, root: Path, host_reserve: Mib) -> None:
        self._root = root
        self._host_reserve = host_reserve
        self._facts: dict[str, _Facts] = {}

    def read(self, place: Place, known: str | None, peers: dict[str, Handle]) -> DeviceReading:
        """Return a reading. `known` is the UUID that was there before, `peers` are the other cards."""
        if isinstance(place.handle, Failed):
            return unanswered(Vendor.NVIDIA, known, place.index, place.handle)
        card = Questions(place.handle)
        uuid = card.uuid()
        if isinstance(uuid, Unsupported | Failed):
            return unanswered(Vendor.NVIDIA, known, place.index, uuid)
        facts = self._facts_of(uuid, card, {peer: peers[peer] for peer in sorted(peers) if peer != uuid})
        if facts.unified:
            return self._read_unified(uuid, place.index, card, facts)
        memory = card.memory()
        return _reading(uuid, place.index, card, facts, memory)

    def _facts_of(self, uuid: str, card: Questions, peers: dict[str, Handle]) -> _Facts:
        facts = self._facts.get(uuid)
        if facts is None or not facts.holds_for(tuple(peers)):
            model, physical_id = card.model(), card.physical_id()
            facts = _Facts(
                model=model,
                physical_id=physical_id,
                unified=is_unified(model, card.capability()),
                numa=_first(self._numa_in_sysfs(physical_id), card.numa()),
                memory_numa=card.memory_numa(),
                links=tuple(card.link(peer, handle) for peer, handle in peers.items()),
                peers=tuple(peers),
            )
            self._facts[uuid] = facts
        return facts

    def _numa_in_sysfs(self, physical_id: Answer[str]) -> Answer[int]:
        if not isinstance(physical_id, str):
            return physical_id
        try:
            node = int(
                (self._root / f"sys/bus/pci/devices/{physical_id}/numa_node").read_text(encoding="utf-8")
            )
        except (OSError, ValueError):
            node = -1
        return node if node >= 0 else Unsupported("the kernel knows no NUMA node of this card")

    def _read_unified(self, uuid: str, index: int, card: Questions, facts: _Facts) -> DeviceReading:
        pool = unified.read_pool(self._root, self._host_reserve)
        memory = Memory(pool.total, pool.reserved, pool.used, MemorySource.HOST)
        if not isinstance(pool.used, int):
            by_nvml = card.memory()
            memory = by_nvml if isinstance(by_nvml.used, int) else memory
        reading = _reading(uuid, index, card, facts, memory)
        part = unified.read_gpu_part(self._root, reading.processes, total=memory.total)
        return msgspec.structs.replace(
            reading,
            used_by_gpu=part.used,
            used_by_gpu_source=part.source,
            processes=part.processes,
            utilization_percent=_first(reading.utilization_percent, unified.read_load(self._root)),
            temperature_c=_first(reading.temperature_c, unified.read_temperature(self._root)),
        )


def _reading(uuid: str, index: int, card: Questions, facts: _Facts, memory: Memory) -> DeviceReading:
    mig_enabled = card.mig_enabled()
    return DeviceReading(
        uuid=uuid,
        index=index,
        vendor=Vendor.NVIDIA,
        physical_id=facts.physical_id,
        model=facts.model,
        total=memory.total,
        reserved=memory.reserved,
        used=memory.used,
        memory_source=memory.source,
        unified=facts.unified,
        utilization_percent=card.utilization(),
        temperature_c=card.temperature(),
        processes=card.processes(memory.total),
        health=card.health(),
        numa=facts.numa,
        memory_numa=facts.memory_numa,
        links=facts.links,
        mig_enabled=mig_enabled,
        mig=card.mig() if mig_enabled is True else () if mig_enabled is False else mig_enabled,
    )


def _first(answer: Answer[int], otherwise: Answer[int]) -> Answer[int]:
    """Return the first answer that is a value, else why the first is none."""
    return answer if isinstance(answer, int) or not isinstance(otherwise, int) else otherwise
