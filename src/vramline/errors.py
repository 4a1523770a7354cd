"""Every error Vramline raises, and what the caller should do about it.

    VramlineError
      RequestError      the input is wrong; never retry, say what is accepted
        MistakesError   the same, several at once
      TransientError    the world was not ready; try again after `retry_after_s`
      InvariantError    our own books contradict themselves; a bug, stop what relies on them

"Does not fit" is no error: it is a `Rejection` inside a `Decision`.
"""

import reprlib

__all__ = ["InvariantError", "MistakesError", "RequestError", "TransientError", "VramlineError"]

_SHOWN_VALUE_LIMIT = 80
"""Characters of a bad value that are repeated in a message; a hostile value must not flood a log."""


class VramlineError(Exception):
    """Base of all errors that Vramline raises on purpose."""


class RequestError(VramlineError):
    """One object or call is wrong. The message names object, field, value and the accepted forms."""

    def __init__(
        self, *, subject: str, problem: str, field: str = "", value: object = None, accepted: str = ""
    ) -> None:
        self.subject = subject
        self.field = field
        self.value = value
        self.problem = problem
        self.accepted = accepted
        where = f"{subject}: {field}" if field else subject
        shown = "" if value is None else f" = {_show(value)}"
        hint = f"; accepted: {accepted}" if accepted else ""
        super().__init__(f"{where}{shown}: {problem}{hint}")


class MistakesError(RequestError):
    """Everything that one pass over an input found wrong, so that it can be put right in one go."""

    def __init__(self, *, subject: str, mistakes: tuple[RequestError, ...]) -> None:
        self.mistakes = mistakes
        super().__init__(subject=subject, problem="; ".join(str(mistake) for mistake in mistakes))


class TransientError(VramlineError):
    """Something outside was not ready or did not answer; the same call may succeed later."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class InvariantError(VramlineError):
    """The books contradict themselves. Never caught to go on as if nothing had happened."""


def _show(value: object) -> str:
    if isinstance(value, list | tuple | dict | set):
        text = reprlib.repr(
            value
        )  # stops early: a list of aliases can be larger than memory when written out
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return (
        text if len(text) <= _SHOWN_VALUE_LIMIT else f"{text[:_SHOWN_VALUE_LIMIT]}… ({len(text)} characters)"
    )
