"""Log lines: their form, their level, their destination."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from vramline.settings import LogFormat, LogLevel
from vramline.telemetry.logs import configure, level_for


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_json_line_holds_event_level_time_and_keys() -> None:
    stream = io.StringIO()
    configure(log_format=LogFormat.JSON, stream=stream)

    structlog.get_logger().info("pod.decided", pod="team/llm-0", ask_mib=8_000)

    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "pod.decided", "level": "info", "pod": "team/llm-0", "ask_mib": 8_000}


def test_lines_of_libraries_come_out_in_the_same_form() -> None:
    stream = io.StringIO()
    configure(log_format=LogFormat.JSON, stream=stream)

    logging.getLogger("some.library").warning("slow by %d s", 3)

    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["logger"]) == ("slow by 3 s", "warning", "some.library")


@pytest.mark.parametrize(
    ("stream", "is_json"),
    [
        pytest.param(io.StringIO(), True, id="a file gets json"),
        pytest.param(Terminal(), False, id="a terminal gets text"),
    ],
)
def test_auto_looks_at_the_stream(stream: io.StringIO, is_json: bool) -> None:
    configure(log_format=LogFormat.AUTO, stream=stream)

    structlog.get_logger().info("demo.started")

    assert stream.getvalue().startswith("{") is is_json


@pytest.mark.parametrize(
    ("stream", "no_color", "coloured"),
    [
        pytest.param(Terminal(), "", True, id="a terminal has colours"),
        pytest.param(Terminal(), "1", False, id="not where NO_COLOR is set"),
        pytest.param(io.StringIO(), "", False, id="a file has none"),
    ],
)
def test_colours(stream: io.StringIO, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    configure(log_format=LogFormat.CONSOLE, stream=stream)

    structlog.get_logger().info("demo.started")

    assert ("\x1b[" in stream.getvalue()) is coloured


@pytest.mark.parametrize(
    ("level", "verbosity", "expected"),
    [
        pytest.param(LogLevel.INFO, 0, logging.INFO, id="the level counts"),
        pytest.param(LogLevel.ERROR, 3, logging.ERROR, id="verbosity below 4 changes nothing"),
        pytest.param(LogLevel.ERROR, 4, logging.DEBUG, id="verbosity 4 shows debug lines"),
    ],
)
def test_level_follows_level_and_verbosity(level: LogLevel, verbosity: int, expected: int) -> None:
    assert level_for(level, verbosity) == expected


def test_less_important_lines_are_not_written() -> None:
    stream = io.StringIO()
    configure(level=LogLevel.WARNING, stream=stream)

    structlog.get_logger().info("pod.decided")
    logging.getLogger("some.library").info("hello")

    assert stream.getvalue() == ""


@pytest.mark.parametrize("log_format", [LogFormat.JSON, LogFormat.CONSOLE])
def test_tracebacks_do_not_show_values_of_variables(log_format: LogFormat) -> None:
    stream = io.StringIO()
    configure(log_format=log_format, stream=stream)
    secret = str(10**30)  # built, so that no source line shows it

    try:
        int(secret[:0])
    except ValueError:
        structlog.get_logger().exception("loop.crashed")

    assert "ValueError" in stream.getvalue()
    assert secret not in stream.getvalue()
