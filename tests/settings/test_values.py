"""From what a person wrote to a value."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.settings import Address, LogFormat, Preemption
from vramline.settings.values import (
    MAX_DURATION_S,
    as_address,
    as_label_key,
    as_label_value,
    as_margin,
    as_optional_address,
    as_scheduler_name,
    as_slots,
    as_switch,
    as_verbosity,
    duration,
    on_or_off,
    one_of,
)

age = duration(may_be_zero=False)
grace = duration(may_be_zero=True)


@pytest.mark.parametrize(
    ("parse", "raw", "value"),
    [
        pytest.param(as_margin, 100, 100, id="margin as a number of a file"),
        pytest.param(as_margin, "100", 100, id="margin as text"),
        pytest.param(as_margin, "100Mi", 100, id="margin in Mi"),
        pytest.param(as_margin, "1Gi", 1024, id="margin in Gi"),
        pytest.param(as_margin, 0, 0, id="no margin"),
        pytest.param(as_margin, "0Gi", 0, id="no margin, with a unit"),
        pytest.param(age, "90s", 90.0, id="seconds"),
        pytest.param(age, 90, 90.0, id="plain seconds"),
        pytest.param(age, 1.5, 1.5, id="a fraction of a second"),
        pytest.param(age, "2m", 120.0, id="minutes"),
        pytest.param(age, "1h", 3600.0, id="an hour"),
        pytest.param(age, "500ms", 0.5, id="milliseconds"),
        pytest.param(grace, 0, 0.0, id="no grace"),
        pytest.param(as_switch, True, True, id="a boolean of a file"),
        pytest.param(as_switch, "TRUE", True, id="true in any case"),
        pytest.param(as_switch, "0", False, id="zero is false"),
        pytest.param(as_verbosity, 4, 4, id="verbosity"),
        pytest.param(as_verbosity, " 10 ", 10, id="highest verbosity, with blanks"),
        pytest.param(as_slots, 256, 256, id="slots"),
        pytest.param(as_slots, "1000", 1000, id="most slots"),
        pytest.param(as_address, "127.0.0.1:8780", Address("127.0.0.1", 8780), id="IPv4 address"),
        pytest.param(as_address, "[::]:80", Address("::", 80), id="IPv6 address"),
        pytest.param(as_address, "localhost:0", Address("localhost", 0), id="any free port"),
        pytest.param(as_label_key, "example.com/pool", "example.com/pool", id="label key with prefix"),
        pytest.param(as_label_key, "", "", id="no label key"),
        pytest.param(as_label_value, "a100", "a100", id="label value"),
        pytest.param(one_of(LogFormat), "json", LogFormat.JSON, id="a word"),
        pytest.param(on_or_off(Preemption), "off", Preemption.OFF, id="off"),
        pytest.param(on_or_off(Preemption), True, Preemption.ON, id="on as YAML reads it"),
        pytest.param(on_or_off(Preemption), False, Preemption.OFF, id="off as YAML reads it"),
    ],
)
def test_reads(parse: Callable[[object], object], raw: object, value: object) -> None:
    assert parse(raw) == value


@pytest.mark.parametrize(
    ("parse", "raw"),
    [
        pytest.param(as_margin, -1, id="negative margin"),
        pytest.param(as_margin, "100 MB", id="decimal unit"),
        pytest.param(as_margin, 1.5, id="half a MiB"),
        pytest.param(as_margin, 2**63, id="more MiB than any card has"),
        pytest.param(as_margin, True, id="a boolean is no amount"),
        pytest.param(age, 0, id="an age that nothing meets"),
        pytest.param(age, "0ms", id="the same with a unit"),
        pytest.param(age, "-5s", id="negative duration"),
        pytest.param(age, math.nan, id="not a number"),
        pytest.param(age, math.inf, id="forever"),
        pytest.param(age, "1e3", id="exponent"),
        pytest.param(age, "2 minutes", id="words"),
        pytest.param(age, "25h", id="more than a day"),
        pytest.param(grace, True, id="a boolean is no duration"),
        pytest.param(as_switch, "on", id="on is not true"),
        pytest.param(as_switch, 2, id="two is not true"),
        pytest.param(as_verbosity, 11, id="too verbose"),
        pytest.param(as_verbosity, "-1", id="less than silent"),
        pytest.param(as_verbosity, "٤", id="a digit of another script"),
        pytest.param(as_slots, 0, id="no slot at all"),
        pytest.param(as_slots, "1001", id="too many slots"),
        pytest.param(as_slots, "many", id="slots in words"),
        pytest.param(as_address, "8780", id="port alone"),
        pytest.param(as_address, "localhost:65536", id="port too high"),
        pytest.param(as_address, "http://localhost:80", id="a URL"),
        pytest.param(as_address, "::1:80", id="IPv6 without brackets"),
        pytest.param(as_label_key, "a/b/c", id="two slashes"),
        pytest.param(as_label_key, "-pool", id="label key starts with a dash"),
        pytest.param(as_label_key, "a b", id="blank in a label key"),
        pytest.param(as_label_value, "x" * 64, id="label value too long"),
        pytest.param(as_label_value, True, id="YAML's yes"),
        pytest.param(as_label_value, 1.10, id="YAML's 1.10"),
        pytest.param(one_of(LogFormat), "xml", id="unknown word"),
        pytest.param(on_or_off(Preemption), "maybe", id="neither on nor off"),
        pytest.param(one_of(LogFormat), None, id="no value"),
        pytest.param(one_of(LogFormat), ["json"], id="a list"),
        pytest.param(as_margin, {"mib": 1}, id="a mapping"),
    ],
)
def test_refuses(parse: Callable[[object], object], raw: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(raw)


@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans())
def test_a_duration_is_in_range_or_refused(raw: object) -> None:
    try:
        seconds = age(raw)
    except ValueError:
        return
    assert 0 < seconds <= MAX_DURATION_S


@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans())
def test_a_margin_is_never_negative(raw: object) -> None:
    try:
        margin = as_margin(raw)
    except ValueError:
        return
    assert margin >= 0


@given(st.ip_addresses().map(str), st.integers(0, 65_535))
def test_an_address_reads_back_as_it_was_written(host: str, port: int) -> None:
    address = Address(host, port)

    assert as_address(str(address)) == address


def test_an_address_may_be_nowhere() -> None:
    assert as_optional_address("") is None
    assert as_optional_address("0.0.0.0:8443") == Address("0.0.0.0", 8443)  # noqa: S104 — what the chart passes


@pytest.mark.parametrize("raw", ["default-scheduler", "No", "", "a b", 7, None])
def test_a_scheduler_has_a_name_of_its_own(raw: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        as_scheduler_name(raw)
    assert as_scheduler_name("vramline.team-a") == "vramline.team-a"
