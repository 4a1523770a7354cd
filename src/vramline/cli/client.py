"""The client commands' side of the JSON API."""

import os
import re
from typing import TYPE_CHECKING, Annotated, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
import typer

from vramline.errors import RequestError, TransientError, VramlineError

if TYPE_CHECKING:
    import httpx

__all__ = ["DEFAULT_SERVER", "VARIABLE", "Client", "ServerOption"]

T = TypeVar("T")

DEFAULT_SERVER = "http://127.0.0.1:8780"
VARIABLE = "VRAMLINE_SERVER"
_TIMEOUT_S = 10.0

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help=f"Where the scheduler or demo is.  [default: ${VARIABLE}, then the cluster of a kubeconfig,"
        f" then {DEFAULT_SERVER}]",
        show_default=False,
    ),
]
"""Type of the `--server` option: `server: ServerOption = None`."""


class _Refusal(msgspec.Struct):
    error: str


class Client:
    """One connection to a scheduler or demo; to be closed by `with`."""

    def __init__(self, server: str | None) -> None:
        import httpx  # noqa: PLC0415 — 90 ms that `--help` need not pay

        told = server or os.environ.get(VARIABLE) or DEFAULT_SERVER
        self.server = _read_address(told, "--server" if server else VARIABLE)
        # A proxy from the environment would be asked for this machine's own loopback address.
        self._http = httpx.Client(base_url=self.server, timeout=_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def origin(self) -> str:
        """Nothing to say: it is the address that was asked for."""
        return ""

    def get(self, path: str, kind: type[T]) -> T:
        """Return what the server says at `path`; an answer that is none of `kind` is an error too."""
        import httpx  # noqa: PLC0415 — as above

        try:
            answer = self._http.get(path)
        except httpx.TransportError as failure:
            raise TransientError(
                f"no answer from {self.server} ({_reason(failure)}); start a cluster with `vramline demo`,"
                f" or name another address with --server or {VARIABLE}"
            ) from None
        if answer.status_code != 200:
            raise VramlineError(self._refusal(answer))
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as odd:
            raise VramlineError(
                f"{self.server} answers, but not as vramline {path} does ({odd}); is it another program?"
            ) from None

    def _refusal(self, answer: "httpx.Response") -> str:
        try:
            return msgspec.json.decode(answer.content, type=_Refusal).error
        except msgspec.DecodeError:
            return f"{self.server} answered {answer.status_code}; is it another program?"


def _read_address(text: str, source: str) -> str:
    """Return the base URL; `host:port` means http."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in url):
        raise RequestError(
            subject=source,
            value=text,
            problem="is not an address",
            accepted="host:port or http://host:port, such as 127.0.0.1:8780",
        )
    return url.rstrip("/")


def _reason(failure: Exception) -> str:
    """Say a failure to connect in a few words, without the number that only programs know."""
    text = re.sub(r"^\[Errno -?[0-9]+\] ", "", str(failure)) or type(failure).__name__
    return text[0].lower() + text[1:]
