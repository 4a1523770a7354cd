"""The cards of this machine, for `vramline doctor`: how they are read, and what they do not answer."""

from collections.abc import Iterator

import msgspec

from vramline.probes.choose import count_cards, has_nvidia, open_probes
from vramline.probes.device import DeviceProbe, DeviceReading, Failed, ProbeError
from vramline.probes.faults import advise
from vramline.probes.options import ProbeOptions
from vramline.serve.findings import Finding, Level
from vramline.units import format_mib

__all__ = ["examine_local_cards"]

_CHECK = "cards"


def examine_local_cards(options: ProbeOptions) -> Iterator[Finding]:
    """Read every card once. Where nothing says that there is one, there is nothing to find."""
    cards = count_cards(options.root)
    if not cards and not has_nvidia(options, cards):
        message = "this machine has no GPU; run doctor on a GPU node to check its library and cards"
        yield Finding(level=Level.OK, check=_CHECK, message=message)
        return
    opened = open_probes(options)
    for error in opened.errors:
        yield _refused(error)
    for probe in opened.probes:
        yield from _read(probe)
        probe.close()


def _refused(error: ProbeError) -> Finding:
    level = Level.WARNING if error.code == "NOT_IMPLEMENTED" else Level.PROBLEM
    return Finding(level=level, check=_CHECK, message=error.summary, advice=error.advice)


def _read(probe: DeviceProbe) -> Iterator[Finding]:
    try:
        readings = probe.read()
    except ProbeError as error:
        yield _refused(error)
        return
    message = f"{len(readings)} card(s) of {probe.vendor} are read through {probe.source}"
    yield Finding(level=Level.OK, check=_CHECK, message=message)
    for reading in readings:
        yield _judge(reading)


def _judge(reading: DeviceReading) -> Finding:
    """Return what the card says, or each reason for which it does not, once."""
    name = f"GPU {_shown(reading.index)} {_shown(reading.uuid)}"
    failures: dict[str, str] = {}
    for each in _failures(reading):
        failures.setdefault(each.code, each.detail)
    if failures:
        said = "; ".join(f"{code}, {detail}" for code, detail in failures.items())
        advice = "; ".join(map(advise, failures))
        return Finding(level=Level.PROBLEM, check=_CHECK, message=f"{name}: {said}", advice=advice)
    memory = ", ".join(
        f"{word} {format_mib(amount)}" if isinstance(amount, int) else f"{word} not told"
        for word, amount in (("total", reading.total), ("used", reading.used))
    )
    return Finding(level=Level.OK, check=_CHECK, message=f"{name} {_shown(reading.model)}: {memory}")


def _failures(reading: DeviceReading) -> Iterator[Failed]:
    for part in (reading, reading.health):
        for field in msgspec.structs.fields(part):
            answer = getattr(part, field.name)
            if isinstance(answer, Failed):
                yield answer


def _shown(answer: object) -> str:
    return str(answer) if isinstance(answer, int | str) else "?"
