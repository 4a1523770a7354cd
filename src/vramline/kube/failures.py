"""Every way in which a call to the API server fails, by what the caller may conclude from it.

    ApiError
      ConflictError      409: somebody else wrote first, or it exists already; read and plan again
      NotFoundError      404
      GoneError          410: this version is no longer kept; list again
      DeniedError        401, 403: not allowed; a retry does not help
      InvalidError       422 and other 4xx: the request itself is wrong
      AmbiguousError     a write that may or may not have happened; read before anything else
      ThrottledError     429: not done, try again after `retry_after_s`
      UnavailableError   not done, or only a read; try again

A write is ambiguous as soon as it was sent and no answer below 500 came back: 500 and 504 may be written by
an API server whose own store answered too late, 502 and 503 by a proxy that lost it on the way.
"""

import msgspec

from vramline.errors import TransientError, VramlineError

__all__ = [
    "AmbiguousError",
    "ApiError",
    "ConflictError",
    "DeniedError",
    "GoneError",
    "InvalidError",
    "NotFoundError",
    "Status",
    "ThrottledError",
    "UnavailableError",
    "failure_of",
    "read_status",
]

_TEXT_LIMIT = 400
"""Characters of an answer that is no Status object which are repeated in a message."""


class ApiError(VramlineError):
    """The API server did not do what it was asked to, or did not say so."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        """HTTP status; 0: there was no answer."""
        self.reason = reason
        """The API server's own word, such as `AlreadyExists`."""


class ConflictError(ApiError):
    """Another writer was first, a precondition does not hold, or the object exists already."""

    @property
    def already_exists(self) -> bool:
        """Whether a create failed because the name is taken."""
        return self.reason == "AlreadyExists"


class NotFoundError(ApiError):
    """There is no such object, or no such kind of object."""


class GoneError(ApiError):
    """The version asked for is no longer kept."""


class DeniedError(ApiError):
    """Who we are is not known, or may not do this."""


class InvalidError(ApiError):
    """The request is wrong; sending it again changes nothing."""


class AmbiguousError(ApiError):
    """The write was sent and may or may not have happened. Never send it again without reading."""


class UnavailableError(ApiError, TransientError):
    """The call was not carried out, or it was only a read; the same call may succeed later."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, code=code, reason=reason)
        self.retry_after_s = retry_after_s


class ThrottledError(UnavailableError):
    """The API server has too much to do and says when to come back."""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`v1 Status`: how the API server words a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)
_BY_CODE: dict[int, type[ApiError]] = {
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
}


def read_status(body: bytes | msgspec.Raw) -> Status:
    """Read the body of a failure; what is no Status object becomes its message."""
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        text = " ".join(bytes(body).decode(errors="replace").split())
        return Status(message=text[:_TEXT_LIMIT])


def failure_of(
    call: str, code: int, status: Status, *, is_write: bool, retry_after_s: float | None = None
) -> ApiError:
    """Return the error for an answer of 400 or more; `call` says in words what was asked."""
    said = ": ".join(part for part in (status.reason, status.message) if part) or "no further word"
    message = f"{call}: {code} {said}"
    wait_s = retry_after_s
    if wait_s is None and status.details is not None and status.details.retry_after_seconds is not None:
        wait_s = float(status.details.retry_after_seconds)
    if code == 429:
        return ThrottledError(
            message, code=code, reason=status.reason, retry_after_s=1.0 if wait_s is None else wait_s
        )
    if code >= 500 and is_write:
        return AmbiguousError(f"{message} (may or may not be done)", code=code, reason=status.reason)
    if code >= 500:
        return UnavailableError(
            message, code=code, reason=status.reason, retry_after_s=1.0 if wait_s is None else wait_s
        )
    return _BY_CODE.get(code, InvalidError)(message, code=code, reason=status.reason)
