"""Run a command in a container through the API server, in the WebSocket protocol that kubectl speaks.

One connection a command, no process on this side. Whoever calls it needs `create` (and, before Kubernetes
1.35, `get`) on `pods/exec` in the pod's namespace, which is as good as being that pod.
"""

import asyncio
import logging
from collections.abc import Sequence
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from vramline.kube.credentials import Credentials, CredentialsError, TlsContexts
from vramline.kube.failures import UnavailableError, failure_of, read_status
from vramline.kube.objects import ObjectKey
from vramline.kube.target import Target

__all__ = ["ExecResult", "PodExec"]

_PROTOCOLS = [Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")]
_OUTPUT, _ERRORS, _END = 1, 2, 3
"""The first byte of a message says which channel it belongs to."""
_QUIET = logging.getLogger("vramline.websockets")
_UNKNOWN_CODE = -1


class ExecResult(msgspec.Struct, frozen=True):
    """What a command wrote, and how it ended."""

    output: str
    errors: str
    code: int
    """Its exit status; −1: it could not be started, or ended in another way that `errors` names."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] | None = None


class _End(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details | None = None


class PodExec:
    """Commands in containers of one cluster."""

    def __init__(self, target: Target, *, most_bytes: int = 1 << 20) -> None:
        self._target = target
        self._most_bytes = most_bytes
        self._credentials = Credentials(target.user, target.cluster)
        self._tls = TlsContexts(target.cluster)

    async def run(
        self, pod: ObjectKey, container: str, command: Sequence[str], *, timeout_s: float = 5.0
    ) -> ExecResult:
        """Run a command to its end. Raises `ApiError` where it cannot be run or does not end in time."""
        call = f"exec in pod {pod}, container {container}"
        try:
            async with asyncio.timeout(timeout_s), await self._connect(pod, container, command) as socket:
                return await self._listen(socket, call)
        except InvalidStatus as error:
            answer = error.response
            raise failure_of(
                call, answer.status_code, read_status(bytes(answer.body)), is_write=False
            ) from None
        except TimeoutError:
            raise UnavailableError(f"{call}: not done within {timeout_s:g} s") from None
        except (OSError, WebSocketException, CredentialsError) as error:
            raise UnavailableError(f"{call}: {error}") from error

    async def _connect(self, pod: ObjectKey, container: str, command: Sequence[str]) -> connect:
        cluster, shown = self._target.cluster, await self._credentials.present()
        parts = urlsplit(cluster.server)
        context = self._tls.current(shown.certificate)
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/exec"
        words = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query = urlencode([*(("command", word) for word in command), *words])
        headers = [*self._target.user.headers]
        if shown.token:
            headers.append(("Authorization", f"Bearer {shown.token}"))
        return connect(
            f"{'wss' if context else 'ws'}://{parts.netloc}{parts.path.rstrip('/')}{path}?{query}",
            ssl=context,
            server_hostname=(cluster.server_name or parts.hostname) if context else None,
            additional_headers=headers,
            subprotocols=_PROTOCOLS,
            open_timeout=None,
            close_timeout=0.2,
            max_size=self._most_bytes,
            compression=None,
            proxy=None,
            logger=_QUIET,
        )

    async def _listen(self, socket: ClientConnection, call: str) -> ExecResult:
        written: dict[int, bytearray] = {_OUTPUT: bytearray(), _ERRORS: bytearray(), _END: bytearray()}
        async for message in socket:
            data = message.encode() if isinstance(message, str) else message
            if data and data[0] in written:
                written[data[0]] += data[1:]
            if sum(map(len, written.values())) > self._most_bytes:
                raise UnavailableError(f"{call}: wrote more than {self._most_bytes} bytes")
        if not written[_END]:
            raise UnavailableError(f"{call}: the connection ended before the command did")
        return _result(written)


def _result(written: dict[int, bytearray]) -> ExecResult:
    output, errors = (written[channel].decode(errors="replace") for channel in (_OUTPUT, _ERRORS))
    try:
        end = msgspec.json.decode(written[_END], type=_End)
    except msgspec.DecodeError:
        return ExecResult(output, f"{errors} {written[_END].decode(errors='replace')}".strip(), _UNKNOWN_CODE)
    if end.status == "Success":
        return ExecResult(output, errors, 0)
    causes = end.details.causes if end.details else None
    codes = [cause.message for cause in causes or () if cause.reason == "ExitCode"]
    code = int(codes[0]) if codes and codes[0].isdecimal() else _UNKNOWN_CODE
    return ExecResult(output, f"{errors} {end.message}".strip(), code)
