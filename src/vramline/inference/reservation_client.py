"""Reservations of a running scheduler, as a caller makes them."""

import contextlib
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from vramline.errors import RequestError, TransientError, VramlineError

__all__ = ["Held", "NoRoomError", "ReservationClient"]

_ADDRESS = "/api/v1/reservations"
_TIMEOUT_S = 30.0
_ATTEMPTS = 3


class NoRoomError(VramlineError):
    """The scheduler found no place; its words say why."""


class _Card(msgspec.Struct, frozen=True):
    uuid: str
    mib: int


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that is held until then, for pods that show the token."""

    token: str
    node: str
    gpus: list[_Card]
    until: float


class _Refusal(msgspec.Struct, frozen=True):
    error: str


class ReservationClient:
    """Makes and ends reservations at one address."""

    def __init__(self, server: str, *, token_file: str | None = None, ca_file: str | None = None) -> None:
        """`token_file` and `ca_file` are for a scheduler on another machine; the token is read every time."""
        self._token_file = token_file
        self._ca_file = ca_file
        url = server if "://" in server else f"http://{server}"
        self._server = url.rstrip("/")

    def _open(self) -> httpx.Client:
        try:
            token = None if self._token_file is None else Path(self._token_file).read_text("utf-8").strip()
            verify = ssl.create_default_context(cafile=self._ca_file)
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "is not text"
            named = f"{self._token_file or ''} {self._ca_file or ''}".strip()
            raise RequestError(
                subject="reservation", value=named, problem=f"cannot be read: {problem}"
            ) from None
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # A proxy from the environment would be asked for this machine's own loopback address.
        return httpx.Client(
            base_url=self._server, timeout=_TIMEOUT_S, trust_env=False, headers=headers, verify=verify
        )

    def reserve(self, *, namespace: str, name: str, pod: Mapping[str, Any], ttl_s: int) -> Held:
        """Reserve what a pod asks for; raises `NoRoomError` where it fits nowhere.

        The token is chosen here, so that asking again after a lost answer reserves nothing twice.
        """
        wish = {
            "owner": {"namespace": namespace, "name": name},
            "pod": pod,
            "ttlSeconds": ttl_s,
            "token": secrets.token_hex(16),
        }
        answer = self._post(wish)
        if answer.status_code == httpx.codes.CONFLICT:
            raise NoRoomError(self._words(answer))
        if answer.status_code != httpx.codes.CREATED:
            raise TransientError(f"the scheduler at {self._server} reserved nothing: {self._words(answer)}")
        return msgspec.json.decode(answer.content, type=Held)

    def end(self, held: Held) -> None:
        """End a reservation; one that is over already, or out of reach, ends by itself."""
        with contextlib.suppress(httpx.TransportError), self._open() as http:
            http.delete(f"{_ADDRESS}/{held.token}")

    def _post(self, wish: dict[str, Any]) -> httpx.Response:
        failed = ""
        with self._open() as http:
            for _ in range(_ATTEMPTS):
                try:
                    return http.post(_ADDRESS, json=wish)
                except httpx.TransportError as failure:
                    failed = str(failure)
        raise TransientError(
            f"no answer from the scheduler at {self._server} ({failed});"
            " name another address, or none to deploy without a reservation"
        )

    def _words(self, answer: httpx.Response) -> str:
        try:
            return msgspec.json.decode(answer.content, type=_Refusal).error
        except (msgspec.DecodeError, msgspec.ValidationError):
            return f"status {answer.status_code}; is it another program?"
