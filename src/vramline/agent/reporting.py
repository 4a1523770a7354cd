"""From cards that were seen to the report that is written and streamed."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET

from vramline.agent.attribution import Owner
from vramline.agent.cards import SeenCard
from vramline.model.gpu import Health
from vramline.model.observation import Unknown
from vramline.probes.device import Answer, DeviceReading, Failed, ProcessReading, Unsupported
from vramline.units import MAX_MIB
from vramline.wire.report_v1alpha1 import GpuReport, NodeCheck, ReportedGpu, ReportedProcess

__all__ = ["NodeFacts", "pids_on", "write_report"]

_MOST_PROCESSES = 1024
_LONGEST_NOTE = 1000
_BLIND = ("processes are not listed: those of the host are not visible to the agent, which needs hostPID",)
"""A driver shows a process only to whoever sees its PID namespace: an empty list would look like idleness."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says besides what the cards answered."""

    node: str
    platform: str = ""
    realtime_check: NodeCheck | None = None
    replicas: Mapping[str, int] = {}
    """Devices that kubelet knows for each card, by UUID; a card that is missing is not known."""


def pids_on(cards: Iterable[SeenCard]) -> set[int]:
    """Return every process on the cards."""
    return {process.pid for card in cards for process in _listed(card.reading) or ()}


def write_report(
    facts: NodeFacts,
    cards: Sequence[SeenCard],
    owners: Mapping[int, Owner] | None,
    *,
    observed_at: float | None,
    notes: Sequence[str] = (),
) -> GpuReport:
    """Return the report of one look. Nothing in it is older than that look, but what a card is.

    `owners` None: a card's list of processes cannot be trusted here, and is left out. A card whose size was
    never told cannot be listed, and is named in the notes. Without `observed_at` no card was ever seen: the
    report says why, and lists nothing.
    """
    listed = [card for card in cards if card.identity.total is not None]
    sizeless = [_without_size(card) for card in cards if card.identity.total is None]
    return GpuReport(
        node=facts.node,
        observed_at=observed_at,
        platform=facts.platform,
        gpus=None if observed_at is None else tuple(_write_card(card, facts, owners) for card in listed),
        realtime_check=facts.realtime_check,
        notes=tuple(_shorten(note) for note in (*notes, *sizeless, *(_BLIND if owners is None else ())))[:64],
    )


def _write_card(card: SeenCard, facts: NodeFacts, owners: Mapping[int, Owner] | None) -> ReportedGpu:
    known, reading = card.identity, card.reading
    total = known.total or 0
    answers = None if isinstance(reading, Failed) else reading
    reserved = known.reserved if known.reserved is not None and known.reserved < total else None
    processes = _listed(reading)
    replicas = facts.replicas.get(known.uuid)
    return ReportedGpu(
        uuid=known.uuid,
        index=known.index,
        model=known.model,
        total_mib=total,
        reserved_mib=reserved,
        used_mib=None if answers is None else _amount(answers.used),
        utilization_percent=None if answers is None else _within(answers.utilization_percent, 0, 100),
        temperature_c=None if answers is None else _within(answers.temperature_c, -273, 1000),
        health=card.condition.health,
        replicas=replicas,
        unified=known.unified,
        numa=_within(-1 if known.numa is None else known.numa, 0, 1023),
        link_group=_within(-1 if known.link_group is None else known.link_group, 0, 1023),
        mig=known.mig,
        processes=_write_processes(processes, owners),
        memory_source=None if answers is None else _text(answers.memory_source),
        note=_note_of(card),
    )


def _write_processes(
    processes: tuple[ProcessReading, ...] | None, owners: Mapping[int, Owner] | None
) -> tuple[ReportedProcess, ...] | None:
    if processes is None or owners is None:
        return None
    return tuple(_write_process(each, owners) for each in processes)


def _write_process(process: ProcessReading, owners: Mapping[int, Owner]) -> ReportedProcess:
    owner = owners.get(process.pid, Unknown("not looked at"))
    return ReportedProcess(
        pid=process.pid,
        used_mib=_amount(process.used),
        pod_uid=UNSET if isinstance(owner, Unknown) else owner,
    )


def _listed(reading: DeviceReading | Failed) -> tuple[ProcessReading, ...] | None:
    """Return the processes on a card; None: not known, or not all of them.

    A partitioned card may list them under its instances only.
    """
    if isinstance(reading, Failed):
        return None
    found = reading.processes
    if not isinstance(found, tuple):
        instances = reading.mig
        if not isinstance(instances, tuple) or not instances:
            return None
        lists = [each.processes for each in instances if isinstance(each.processes, tuple)]
        if len(lists) < len(instances):
            return None
        found = tuple(process for each in lists for process in each)
    believable = tuple(process for process in found if 0 <= process.pid <= 2**31)
    return believable if len(believable) == len(found) <= _MOST_PROCESSES else None


def _note_of(card: SeenCard) -> str | None:
    """Say why memory is not told, or why the card is not healthy."""
    why = "" if card.condition.health is Health.HEALTHY else card.condition.why
    failed = card.reading if isinstance(card.reading, Failed) else card.reading.used
    if isinstance(failed, Failed):
        said = f"{failed.code}: {failed.detail}" if failed.detail else failed.code
        why = why if said in why else f"{said}; {why}" if why else said
    elif isinstance(failed, Unsupported) and not why:
        why = f"memory in use is not told: {failed.detail}" if failed.detail else "memory in use is not told"
    return _shorten(why) or None


def _without_size(card: SeenCard) -> str:
    failed = card.reading if isinstance(card.reading, Failed) else card.reading.total
    why = f": {failed.code} {failed.detail}" if isinstance(failed, Failed) else ""
    return f"{card.identity.uuid} never told its size{why}"


def _amount(answer: Answer[int]) -> int | None:
    return _within(answer, 0, MAX_MIB)


def _within(answer: Answer[int], low: int, high: int) -> int | None:
    return answer if isinstance(answer, int) and low <= answer <= high else None


def _text(answer: Answer[str]) -> str | None:
    return str(answer) if isinstance(answer, str) else None


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]}…"
