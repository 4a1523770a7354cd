"""Which cards of a machine reach each other over NVLink."""

from collections.abc import Mapping

from vramline.probes.device import DeviceReading

__all__ = ["group_linked"]


def group_linked(readings: Mapping[str, DeviceReading]) -> dict[str, int]:
    """Return, by UUID, the index of the first card of its group; a card that reaches no other is in none."""
    peers: dict[str, set[str]] = {uuid: set() for uuid in readings}
    for uuid, reading in readings.items():
        for peer in _peers_of(reading) & readings.keys():
            peers[uuid].add(peer)
            peers[peer].add(uuid)  # one of them may not have answered
    groups: dict[str, int] = {}
    for uuid, reading in sorted(readings.items(), key=lambda item: _index_of(item[1])):
        if uuid in groups or not peers[uuid]:
            continue
        waiting = [uuid]
        while waiting:
            member = waiting.pop()
            if member not in groups:
                groups[member] = _index_of(reading)
                waiting += peers[member]
    return groups


def _peers_of(reading: DeviceReading) -> set[str]:
    links = reading.links
    return {link.peer for link in links if link.nvlink is True} if isinstance(links, tuple) else set()


def _index_of(reading: DeviceReading) -> int:
    return reading.index if isinstance(reading.index, int) else 0
