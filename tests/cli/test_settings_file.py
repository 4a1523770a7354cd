"""Settings as flags: every one of them, in both spellings, and what is no setting."""

import pytest

from vramline.cli.settings_file import load_settings, read_setting_flags
from vramline.errors import RequestError
from vramline.settings import SETTINGS


def test_every_setting_is_a_flag() -> None:
    given = [word for setting in SETTINGS for word in (setting.option, "x")]

    assert read_setting_flags(given) == {setting.name: "x" for setting in SETTINGS}


def test_a_flag_is_given_with_a_space_or_an_equals_sign() -> None:
    flags = read_setting_flags(["--margin", "256Mi", "--preemption=off"])

    settings = load_settings(None, flags)
    assert (settings.margin, settings.preemption) == (256, "off")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--preemtion", "off"], "--preemtion: is no option; accepted: --preemption"),
        (["--margin"], "--margin: has no value"),
        (["now"], "now: is no option; accepted: one of docs/settings.md"),
    ],
    ids=["unknown", "without a value", "no option"],
)
def test_what_is_no_setting_is_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_setting_flags(arguments)

    assert str(refused.value) == problem
