"""From a look to a report: what was not told is absent, and nothing is older than the look."""

from typing import Any

import pytest
from msgspec import UNSET

from agent.readings import LOST, reading
from vramline.agent.attribution import Owner
from vramline.agent.cards import Cards
from vramline.agent.reporting import NodeFacts, pids_on, write_report
from vramline.model.gpu import Health
from vramline.model.observation import Unknown
from vramline.probes.device import (
    UNSUPPORTED,
    DeviceReading,
    Failed,
    MigInstance,
    ProcessReading,
    Unsupported,
)
from vramline.units import Mib
from vramline.wire.report_v1alpha1 import (
    GpuReport,
    NodeCheck,
    ReportedGpu,
    ReportedProcess,
    decode_report,
    encode_report,
)

FACTS = NodeFacts(node="n1", platform="x86", realtime_check=NodeCheck.WARNING, replicas={"GPU-a": 4})
TIMEOUT = Failed("TIMEOUT", "no answer")


def report(*readings: DeviceReading, owners: dict[int, Owner] | None = None) -> GpuReport:
    return write_report(FACTS, Cards().look(readings, (), 0.0), owners or {}, observed_at=60.0)


def card(**fields: Any) -> ReportedGpu:
    (gpu,) = report(reading(**fields)).gpus or ()
    return gpu


def test_a_card_that_answers_everything_is_reported_whole() -> None:
    seen = report(reading(), owners={7: "uid-1"})

    assert seen == GpuReport(
        node="n1",
        observed_at=60.0,
        platform="x86",
        realtime_check=NodeCheck.WARNING,
        gpus=(
            ReportedGpu(
                uuid="GPU-a",
                index=0,
                model="NVIDIA H100",
                total_mib=81_559,
                reserved_mib=550,
                used_mib=6_144,
                utilization_percent=45,
                temperature_c=51,
                health=Health.HEALTHY,
                replicas=4,
                unified=False,
                numa=1,
                mig=False,
                processes=(ReportedProcess(pid=7, used_mib=6_144, pod_uid="uid-1"),),
                memory_source="nvml",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("owner", "written"),
    [("uid-1", "uid-1"), (None, None), (Unknown("gone"), UNSET)],
    ids=["a pod's", "nobody's", "not attributed"],
)
def test_owners_are_three_different_things(owner: Owner, written: object) -> None:
    (gpu,) = report(reading(), owners={7: owner}).gpus or ()

    assert gpu.processes == (ReportedProcess(pid=7, used_mib=6_144, pod_uid=written),)  # type: ignore[arg-type]


def test_a_process_nobody_looked_at_is_not_attributed() -> None:
    assert card().processes == (ReportedProcess(pid=7, used_mib=6_144, pod_uid=UNSET),)


def test_what_a_card_does_not_tell_is_absent() -> None:
    silent = card(used=TIMEOUT, processes=TIMEOUT, utilization_percent=UNSUPPORTED, temperature_c=TIMEOUT)

    assert (silent.used_mib, silent.processes, silent.utilization_percent, silent.temperature_c) == (
        (None,) * 4
    )
    assert silent.note == "TIMEOUT: no answer"


def test_a_card_that_cannot_tell_its_memory_says_so() -> None:
    assert card(used=Unsupported("unified memory")).note == "memory in use is not told: unified memory"


def test_after_a_look_that_failed_nothing_of_the_last_one_is_left() -> None:
    cards = Cards()
    cards.look([reading()], (), 0.0)

    (gpu,) = write_report(FACTS, cards.miss(TIMEOUT, 1.0), {}, observed_at=61.0).gpus or ()

    assert (gpu.uuid, gpu.total_mib, gpu.reserved_mib) == ("GPU-a", 81_559, 550)
    assert (gpu.used_mib, gpu.processes, gpu.utilization_percent, gpu.temperature_c) == (None,) * 4
    assert (gpu.memory_source, gpu.health) == (None, Health.SUSPECT)


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"used": 2**40}, "used_mib", None),
        ({"utilization_percent": 250}, "utilization_percent", None),
        ({"temperature_c": 5000}, "temperature_c", None),
        ({"reserved": Mib(90_000)}, "reserved_mib", None),
        ({"numa": -1}, "numa", None),
    ],
)
def test_nonsense_is_absent(fields: dict[str, Any], name: str, value: object) -> None:
    gpu = card(**fields)

    assert getattr(gpu, name) is value
    decode_report(encode_report(GpuReport(node="n1", gpus=(gpu,))))


def test_a_card_without_a_size_is_in_the_notes() -> None:
    seen = report(reading(total=LOST))

    assert (seen.gpus, seen.notes) == ((), ("GPU-a never told its size: GPU_IS_LOST fell off the bus",))


def test_before_any_look_there_is_no_list_of_cards() -> None:
    seen = write_report(FACTS, (), {}, observed_at=None, notes=["no library"])

    assert (seen.gpus, seen.observed_at, seen.notes) == (None, None, ("no library",))


def test_too_many_processes_are_not_known_rather_than_half_known() -> None:
    many = tuple(ProcessReading(pid=pid) for pid in range(1, 2000))

    assert card(processes=many).processes is None


def test_processes_of_a_partitioned_card_are_those_of_its_instances() -> None:
    instances = tuple(
        MigInstance(uuid=f"MIG-{number}", processes=(ProcessReading(pid=number, used=Mib(5)),))
        for number in (7, 8)
    )
    seen = Cards().look([reading(processes=UNSUPPORTED, mig_enabled=True, mig=instances)], (), 0.0)

    assert pids_on(seen) == {7, 8}
    (gpu,) = write_report(FACTS, seen, {}, observed_at=0.0).gpus or ()
    assert gpu.mig is True


def test_one_instance_that_does_not_tell_makes_the_list_unknown() -> None:
    instances = (MigInstance(uuid="MIG-1", processes=()), MigInstance(uuid="MIG-2"))

    assert card(processes=UNSUPPORTED, mig=instances).processes is None


def test_notes_are_short_enough_for_the_object() -> None:
    seen = write_report(FACTS, (), {}, observed_at=0.0, notes=["x" * 5000] * 100)

    assert len(seen.notes) == 64
    assert all(len(note) <= 1024 for note in seen.notes)


def test_where_the_hosts_processes_are_not_visible_an_empty_list_is_not_an_idle_card() -> None:
    seen = Cards().look([reading(processes=())], (), 0.0)

    report = write_report(FACTS, seen, None, observed_at=0.0)

    assert report.gpus is not None
    assert (report.gpus[0].processes, report.gpus[0].used_mib) == (None, 6_144)
    assert "hostPID" in report.notes[0]
