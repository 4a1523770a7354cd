"""Tokens that expire, certificates that are replaced, and commands that print either.

Asked before every request and every connection, answered from memory while it is fresh: a token file is read
again every minute (kubelet replaces it long before it expires), a command is run again shortly before what
it printed expires, and both at once after the API server said 401.
"""

import asyncio
import datetime as dt
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vramline.errors import RequestError, TransientError
from vramline.kube.target import Cluster, ExecPlugin, Pem, PemPair, User
from vramline.wire.times import Timestamp

__all__ = ["Credentials", "CredentialsError", "Presented", "TlsContexts"]

_TOKEN_FILE_S = 60.0
_EXPIRY_MARGIN_S = 30.0
_PLUGIN_TIMEOUT_S = 60.0
_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class CredentialsError(TransientError):
    """Credentials could not be had just now."""


@dataclass(frozen=True, slots=True)
class Presented:
    """What we show to the API server."""

    token: str = ""
    certificate: PemPair | None = None


class _PluginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Timestamp | None = None


class _PluginAnswer(msgspec.Struct, frozen=True):
    status: _PluginStatus


class Credentials:
    """Who we are, kept fresh."""

    def __init__(
        self,
        user: User,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._user = user
        self._cluster = cluster
        self._clock = clock
        self._wall = wall
        self._kept: Presented | None = None
        self._fresh_until = 0.0
        self._asking = asyncio.Lock()

    @property
    def can_be_renewed(self) -> bool:
        """Whether asking again may give something else."""
        return self._user.plugin is not None or self._user.token_file is not None

    def forget(self) -> None:
        """Ask again next time: the API server did not accept what it was shown."""
        self._kept = None

    async def present(self) -> Presented:
        """Return what to show now; raises `CredentialsError`."""
        if self._kept is not None and self._clock() < self._fresh_until:
            return self._kept
        async with self._asking:
            if self._kept is None or self._clock() >= self._fresh_until:
                self._kept, fresh_s = await self._ask()
                self._fresh_until = self._clock() + fresh_s
            return self._kept

    async def _ask(self) -> tuple[Presented, float]:
        """Return what to show, and for how many seconds it may be shown."""
        user = self._user
        if user.plugin is not None:
            return await self._ask_plugin(user.plugin)
        if user.token_file is not None:
            return Presented(_read_token(user.token_file), user.certificate), _TOKEN_FILE_S
        return Presented(user.token, user.certificate), float("inf")

    async def _ask_plugin(self, plugin: ExecPlugin) -> tuple[Presented, float]:
        status = read_plugin_answer(await _run(plugin, self._cluster), plugin.command)
        certificate = self._user.certificate
        if status.client_certificate_data and status.client_key_data:
            certificate = PemPair(status.client_certificate_data.encode(), status.client_key_data.encode())
        presented = Presented(status.token.strip(), certificate)
        if status.expiration_timestamp is None:
            return presented, float("inf")
        left_s = (status.expiration_timestamp - _EPOCH).total_seconds() - self._wall()
        return presented, max(left_s - _EXPIRY_MARGIN_S, 0.0)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def read_plugin_answer(output: bytes, command: str) -> _PluginStatus:
    """Read the ExecCredential that a command printed."""
    try:
        status = msgspec.json.decode(output, type=_PluginAnswer).status
    except msgspec.DecodeError as error:
        raise CredentialsError(
            f"credential command {command} did not print an ExecCredential: {error}"
        ) from None
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise CredentialsError(
            f"credential command {command} printed neither a token nor a certificate with key"
        )
    return status


async def _run(plugin: ExecPlugin, cluster: Cluster) -> bytes:
    if plugin.api_version not in _PLUGIN_VERSIONS:
        raise RequestError(
            subject=f"credential command {plugin.command}",
            field="apiVersion",
            value=plugin.api_version,
            problem="is not supported",
            accepted=", ".join(_PLUGIN_VERSIONS),
        )
    environment = {
        **os.environ,
        **dict(plugin.environment),
        "KUBERNETES_EXEC_INFO": _plugin_input(plugin, cluster),
    }
    try:
        child = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f"; {plugin.hint}" if plugin.hint else ""
        raise CredentialsError(
            f"credential command {plugin.command} cannot be run: {error.strerror}{hint}"
        ) from None
    return await _finish(child, plugin.command)


async def _finish(child: asyncio.subprocess.Process, command: str) -> bytes:
    try:
        async with asyncio.timeout(_PLUGIN_TIMEOUT_S):
            output, errors = await child.communicate()
    except TimeoutError:
        raise CredentialsError(
            f"credential command {command} did not end within {_PLUGIN_TIMEOUT_S:g} s"
        ) from None
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode != 0:
        said = " ".join(errors.decode(errors="replace").split())[-400:]
        raise CredentialsError(f"credential command {command} ended with {child.returncode}: {said}")
    return output


def _plugin_input(plugin: ExecPlugin, cluster: Cluster) -> str:
    spec: dict[str, object] = {"interactive": False}
    if plugin.wants_cluster:
        spec["cluster"] = {
            "server": cluster.server,
            "tls-server-name": cluster.server_name,
            "insecure-skip-tls-verify": cluster.insecure,
            "certificate-authority-data": b"" if cluster.authority is None else _read_pem(cluster.authority),
        }
    document = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(document).decode()


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise CredentialsError(f"token file {path} cannot be read: {error.strerror}") from None
    if not token:
        raise CredentialsError(f"token file {path} is empty")
    return token


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────
class TlsContexts:
    """The TLS settings for new connections, built again when a file they came from was replaced."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._built_from: object = None
        self._context: ssl.SSLContext | None = None

    def current(self, certificate: PemPair | None) -> ssl.SSLContext | None:
        """Return the settings to connect with; None: the server speaks plain HTTP."""
        if self._cluster.server.startswith("http://"):
            return None
        pems = [self._cluster.authority, *([certificate.certificate, certificate.key] if certificate else [])]
        sources = [_state_of(pem) for pem in pems]
        if self._context is None or sources != self._built_from:
            self._context, self._built_from = _build(self._cluster, certificate), sources
        return self._context


def _build(cluster: Cluster, certificate: PemPair | None) -> ssl.SSLContext:
    try:
        authority = None if cluster.authority is None else _read_pem(cluster.authority).decode()
        context = ssl.create_default_context(cadata=authority)
        # From Python 3.13 on the default refuses authorities without a key identifier, and many clusters
        # were installed with such a one.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if cluster.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            _load(context, certificate)
    except OSError as error:  # ssl.SSLError is one
        raise CredentialsError(f"certificates for {cluster.server} cannot be used: {error}") from error
    return context


def _load(context: ssl.SSLContext, certificate: PemPair) -> None:
    """OpenSSL reads files only: what was given as text is one for a moment, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="vramline-tls-") as folder:
        context.load_cert_chain(
            _as_file(certificate.certificate, Path(folder, "crt")),
            _as_file(certificate.key, Path(folder, "key")),
            password=_no_password,
        )


def _as_file(pem: Pem, path: Path) -> Path:
    if isinstance(pem, Path):
        return pem
    path.touch(mode=0o600)
    path.write_bytes(pem)
    return path


def _no_password() -> str:
    """A key with a password would make OpenSSL ask at the terminal."""
    raise OSError("the client key is protected by a password")


def _read_pem(pem: Pem) -> bytes:
    return pem if isinstance(pem, bytes) else pem.read_bytes()


def _state_of(pem: Pem | None) -> object:
    """Return something that changes when a certificate or key does."""
    if not isinstance(pem, Path):
        return pem
    try:
        status = pem.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)
