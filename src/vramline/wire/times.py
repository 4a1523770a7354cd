"""Calendar time on the wire, seconds since the epoch inside."""

import datetime as dt
from typing import Annotated

import msgspec

from vramline.errors import RequestError

__all__ = ["Timestamp", "format_time", "moment_of", "read_time", "seconds_of"]

Timestamp = Annotated[dt.datetime, msgspec.Meta(tz=True)]
"""A point in time as Kubernetes writes it (RFC 3339 with a zone)."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def read_time(text: str, *, subject: str, field: str) -> float:
    """Read an RFC 3339 time as seconds since the epoch.

    >>> read_time("1970-01-01T00:01:00Z", subject="GpuReport n1", field="status.observedAt")
    60.0
    """
    try:
        return seconds_of(msgspec.convert(text, Timestamp))
    except msgspec.ValidationError:
        raise RequestError(
            subject=subject,
            field=field,
            value=text,
            problem="is not a point in time",
            accepted="RFC 3339, such as 2026-01-01T00:00:00Z",
        ) from None


def seconds_of(moment: dt.datetime) -> float:
    """Return seconds since the epoch, to the microsecond."""
    return moment.timestamp()


def moment_of(seconds: float) -> dt.datetime:
    """Return the point in time of seconds since the epoch."""
    return _EPOCH + dt.timedelta(seconds=seconds)


def format_time(seconds: float) -> str:
    """Write seconds since the epoch as RFC 3339 in UTC.

    >>> format_time(60.0), format_time(0.25)
    ('1970-01-01T00:01:00Z', '1970-01-01T00:00:00.250000Z')
    """
    return moment_of(seconds).isoformat().replace("+00:00", "Z")
