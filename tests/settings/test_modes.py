"""The mode in force for one pod, and the rules that follow from settings."""

import pytest

from vramline.model.ask import Ask, MibSize, PolicyName, RealtimeMode
from vramline.model.rules import Rules
from vramline.settings import (
    Settings,
    StaleObservation,
    UnsizedAsk,
    admission_from,
    effective_mode,
    load,
    rules_from,
)
from vramline.units import Mib
from vramline.wire.admission import AdmissionOptions, Backend, SchedulerNamePolicy

STRICT, WARNING, DISABLED = RealtimeMode.STRICT, RealtimeMode.WARNING, RealtimeMode.DISABLED


def ask(mode: RealtimeMode | None, enable: bool | None) -> Ask:
    return Ask(pod="ns/p", pod_uid="u", gpus=1, size=MibSize(Mib(1)), mode=mode, enable_realtime=enable)


@pytest.mark.parametrize(
    ("in_force", "mode", "enable", "expected"),
    [
        pytest.param(WARNING, None, None, WARNING, id="a silent pod gets the mode in force"),
        pytest.param(STRICT, DISABLED, None, DISABLED, id="the pod's mode wins"),
        pytest.param(STRICT, None, False, DISABLED, id="off is disabled"),
        pytest.param(WARNING, None, True, WARNING, id="on keeps the mode in force"),
        pytest.param(DISABLED, None, True, STRICT, id="on is strict where the check is disabled"),
        pytest.param(STRICT, WARNING, False, WARNING, id="a named mode wins over the switch"),
    ],
)
def test_a_pod_wins_over_settings(
    in_force: RealtimeMode, mode: RealtimeMode | None, enable: bool | None, expected: RealtimeMode
) -> None:
    assert effective_mode(Settings(realtime_mode=in_force), ask(mode, enable)) is expected


def test_default_settings_are_the_default_rules() -> None:
    assert rules_from(Settings()) == Rules()


def test_rules_carry_what_settings_say() -> None:
    settings = Settings(
        realtime_mode=WARNING,
        policy=PolicyName.SPREAD,
        observation_max_age_s=10.0,
        stale_observation=StaleObservation.REFUSE,
        unsized_ask=UnsizedAsk.WHOLE,
    )

    assert rules_from(settings) == Rules(
        mode=WARNING, policy=PolicyName.SPREAD, max_age_s=10.0, stale_refuses=True, unsized_is_whole=True
    )


def test_admission_is_told_what_settings_say() -> None:
    settings = load({"backend": "plugin", "schedulerName": "vram", "schedulerNamePolicy": "always"}, {}, {})

    assert admission_from(Settings()) == AdmissionOptions()
    assert admission_from(Settings(reservation_image="vramline")) == AdmissionOptions(makes_reservations=True)
    assert admission_from(settings) == AdmissionOptions(
        scheduler_name="vram", scheduler_name_policy=SchedulerNamePolicy.ALWAYS, backend=Backend.PLUGIN
    )
