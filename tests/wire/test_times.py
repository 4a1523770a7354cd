"""Calendar time in, seconds out."""

import pytest

from vramline.errors import RequestError
from vramline.wire.times import format_time, read_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01T02:00:00+02:00", 1_767_225_600.0),
        ("1970-01-01T00:00:00.25Z", 0.25),
        ("1969-12-31T23:59:59Z", -1.0),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert read_time(text, subject="x", field="y") == seconds


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "12"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_time(text, subject="GpuReport n1", field="status.observedAt")

    assert str(caught.value) == (
        f"GpuReport n1: status.observedAt = {text!r}: is not a point in time;"
        " accepted: RFC 3339, such as 2026-01-01T00:00:00Z"
    )


def test_times_are_written_in_utc() -> None:
    assert format_time(1_767_225_600.0) == "2026-01-01T00:00:00Z"
