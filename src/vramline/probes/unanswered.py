"""Readings of cards that do not answer, or are not there."""

from collections.abc import Collection

from vramline.probes.device import DeviceReading, Failed, HealthFacts, Unsupported

__all__ = ["select", "unanswered"]


def unanswered(vendor: str, uuid: str | None, index: int | None, why: Unsupported | Failed) -> DeviceReading:
    """Return a reading in which every field says why; name and place are known from before, or not."""
    return DeviceReading(
        uuid=why if uuid is None else uuid,
        index=why if index is None else index,
        vendor=vendor,
        physical_id=why,
        model=why,
        total=why,
        reserved=why,
        used=why,
        memory_source=why,
        unified=why,
        used_by_gpu=why,
        used_by_gpu_source=why,
        utilization_percent=why,
        temperature_c=why,
        processes=why,
        health=HealthFacts(ecc_corrected=why, ecc_uncorrected=why, rows_pending=why, rows_failed=why),
        numa=why,
        memory_numa=why,
        links=why,
        mig_enabled=why,
        mig=why,
    )


def select(vendor: str, readings: list[DeviceReading], uuids: Collection[str] | None) -> list[DeviceReading]:
    """Return the readings of the cards named, all where none is; one that is not there is said to be so."""
    if uuids is None:
        return readings
    missing = sorted(set(uuids) - {each.uuid for each in readings})
    found = [each for each in readings if each.uuid in uuids]
    return found + [
        unanswered(vendor, uuid, None, Failed("NOT_FOUND", f"no card of {vendor} has the UUID {uuid}"))
        for uuid in missing
    ]
