"""Logs: one event name per fact, keys instead of prose, to standard error.

Only the shell logs; the core returns. Event names are `noun.verb` (`pod.decided`, `claim.released`), and the
same thing has the same key everywhere: `pod`, `node`, `gpu`, `ask_mib`.
"""

import logging
import os
import sys
from typing import TextIO

from vramline.telemetry.plain_structlog import structlog  # isort: skip — before anything of structlog
from structlog.typing import Processor

from vramline.settings import LogFormat, LogLevel

__all__ = ["TRACE_VERBOSITY", "configure", "level_for"]

TRACE_VERBOSITY = 4
"""From this verbosity on debug lines are written, whatever the level says."""

_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


def level_for(level: LogLevel, verbosity: int) -> int:
    """Return the number of the least important level that is written.

    >>> level_for(LogLevel.WARNING, 0), level_for(LogLevel.WARNING, 4)
    (30, 10)
    """
    return logging.DEBUG if verbosity >= TRACE_VERBOSITY else _LEVELS[level]


def configure(
    *,
    level: LogLevel = LogLevel.INFO,
    log_format: LogFormat = LogFormat.AUTO,
    verbosity: int = 0,
    stream: TextIO | None = None,
) -> None:
    """Set up logging of this process; call it once, at its start.

    Lines of libraries that use Python's own logging come out in the same form. `stream` is standard error
    unless given. Colours only on a terminal, and never where `NO_COLOR` is set.
    """
    stream = sys.stderr if stream is None else stream
    least = level_for(level, verbosity)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = _renderer(log_format, stream)
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=least, force=True)


def _renderer(log_format: LogFormat, stream: TextIO) -> list[Processor]:
    """Return the last steps: from an event's keys to one line of text.

    Tracebacks are plain: values of local variables may be somebody's secrets.
    """
    terminal = stream.isatty()
    if log_format is LogFormat.JSON or (log_format is LogFormat.AUTO and not terminal):
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    colors = terminal and not os.environ.get("NO_COLOR")
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
