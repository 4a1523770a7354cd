"""Which API server, and as whom: what kubeconfig files and the in-cluster folder say.

Looked for in this order: the file that is named, `KUBECONFIG`, the service account of the pod this runs in,
`~/.kube/config`. What a file asks for and is not supported here is refused, never ignored: an ignored
impersonation or proxy would reach another server or be another user.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from vramline.errors import RequestError
from vramline.wire.decoding import convert_document

__all__ = ["Cluster", "ExecPlugin", "Pem", "PemPair", "Target", "User", "find_target", "in_cluster"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Pem = bytes | Path
"""A certificate or key: its text, or the file in which it is (and may be replaced)."""


@dataclass(frozen=True, slots=True)
class PemPair:
    """A client certificate and its key."""

    certificate: Pem
    key: Pem


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One API server."""

    server: str
    authority: Pem | None = None
    """Who signed its certificate; None: the authorities that this machine trusts."""
    server_name: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A command that prints credentials."""

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    wants_cluster: bool = False
    hint: str = ""
    """What to tell the user when the command is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who we are. At most one of the four ways to say so is needed."""

    token: str = ""
    token_file: Path | None = None
    certificate: PemPair | None = None
    plugin: ExecPlugin | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Impersonation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Everything needed to call an API server."""

    cluster: Cluster
    user: User
    namespace: str = "default"
    origin: str = ""
    """Where this was found, for messages."""


# ── kubeconfig as written ────────────────────────────────────────────────────────────────────────────
class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Base of the kubeconfig structs; keys are written with hyphens."""


class _ClusterEntry(_Strict, frozen=True, kw_only=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _ExecEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None
    provide_cluster_info: bool = False
    install_hint: str = ""


class _UserEntry(_Strict, frozen=True, kw_only=True):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    auth_provider: dict[str, object] | None = None
    exec: _ExecEntry | None = None
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _ContextEntry(_Strict, frozen=True, kw_only=True):
    cluster: str
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Strict, frozen=True, kw_only=True):
    name: str
    cluster: _ClusterEntry


class _NamedUser(_Strict, frozen=True, kw_only=True):
    name: str
    user: _UserEntry = _UserEntry()


class _NamedContext(_Strict, frozen=True, kw_only=True):
    name: str
    context: _ContextEntry


class _Kubeconfig(_Strict, frozen=True, kw_only=True):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class _File:
    """One kubeconfig file; relative paths in it start at its folder."""

    path: Path
    content: _Kubeconfig


def find_target(
    environment: Mapping[str, str],
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Target:
    """Return the API server to talk to; raises `RequestError` where there is none, or a wrong description."""
    if kubeconfig is not None:
        return _read_target([kubeconfig], context)
    listed = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return _read_target([path for path in listed if path.exists()] or listed[:1], context)
    if environment.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return in_cluster(environment, service_account)
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return _read_target([default], context)
    raise RequestError(
        subject="Kubernetes",
        problem=f"no cluster is configured: no KUBECONFIG, not inside a pod, and {default} is not there",
        accepted="--kubeconfig FILE, KUBECONFIG=FILE, or a pod with a service account",
    )


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Target:
    """Return the API server of the cluster whose pod this runs in."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Target(
        cluster=Cluster(server=f"https://{host}:{port}", authority=folder / "ca.crt"),
        user=User(token_file=folder / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        origin=f"service account in {folder}",
    )


def _read_target(paths: Sequence[Path], context: str) -> Target:
    """Merge files as kubectl does: what an earlier file says, wins."""
    files = [_read_file(path) for path in paths]
    subject = f"kubeconfig {os.pathsep.join(str(path) for path in paths)}"
    current = next((file.content.current_context for file in files if file.content.current_context), "")
    wanted = context or current
    if not wanted:
        raise RequestError(subject=subject, field="current-context", problem="is not set")
    _, chosen = _pick(
        [(file, each.name, each.context) for file in files for each in file.content.contexts or ()],
        subject=subject,
        field="contexts",
        name=wanted,
    )
    cluster_file, cluster = _pick(
        [(file, each.name, each.cluster) for file in files for each in file.content.clusters or ()],
        subject=subject,
        field="clusters",
        name=chosen.cluster,
    )
    users = [(file, each.name, each.user) for file in files for each in file.content.users or ()]
    user_file, user = (
        _pick(users, subject=subject, field="users", name=chosen.user)
        if chosen.user
        else (files[0], _UserEntry())
    )
    return Target(
        cluster=_resolve_cluster(cluster_file, cluster, f"{subject}: cluster {chosen.cluster}"),
        user=_resolve_user(user_file, user, f"{subject}: user {chosen.user}"),
        namespace=chosen.namespace or "default",
        origin=f"{subject}, context {wanted}",
    )


def _read_file(path: Path) -> _File:
    subject = f"kubeconfig {path}"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(subject=subject, problem=f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = f"is not YAML: {' '.join(str(error).split())}"
        raise RequestError(subject=subject, problem=problem) from None
    return _File(path, convert_document(document or {}, _Kubeconfig, subject=subject))


def _pick(
    entries: list[tuple[_File, str, Entry]], *, subject: str, field: str, name: str
) -> tuple[_File, Entry]:
    for file, known, entry in entries:
        if known == name:
            return file, entry
    accepted = ", ".join(sorted({known for _, known, _ in entries})) or "there are none"
    raise RequestError(subject=subject, field=field, value=name, problem="is not there", accepted=accepted)


def _resolve_cluster(file: _File, entry: _ClusterEntry, subject: str) -> Cluster:
    if entry.proxy_url:
        raise RequestError(
            subject=subject,
            field="proxy-url",
            value=entry.proxy_url,
            problem="is not supported",
            accepted="a direct connection",
        )
    parts = urlsplit(entry.server)
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise RequestError(
            subject=subject,
            field="server",
            value=entry.server,
            problem="is no address",
            accepted="https://HOST[:PORT][/PATH]",
        )
    return Cluster(
        server=entry.server.rstrip("/"),
        authority=_pem(file, entry.certificate_authority_data, entry.certificate_authority, subject),
        server_name=entry.tls_server_name,
        insecure=entry.insecure_skip_tls_verify,
    )


def _resolve_user(file: _File, entry: _UserEntry, subject: str) -> User:
    _refuse_unsupported(entry, subject)
    certificate = _pem(file, entry.client_certificate_data, entry.client_certificate, subject)
    key = _pem(file, entry.client_key_data, entry.client_key, subject)
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise RequestError(subject=subject, field=missing, problem="is missing beside its other half")
    return User(
        token=entry.token,
        token_file=_beside(file, entry.token_file) if entry.token_file else None,
        certificate=PemPair(certificate, key) if certificate is not None and key is not None else None,
        plugin=None if entry.exec is None else _resolve_plugin(file, entry.exec),
        headers=(
            *((("Impersonate-User", entry.as_),) if entry.as_ else ()),
            *((("Impersonate-Uid", entry.as_uid),) if entry.as_uid else ()),
            *(("Impersonate-Group", group) for group in entry.as_groups or ()),
        ),
    )


def _refuse_unsupported(entry: _UserEntry, subject: str) -> None:
    unsupported = {
        "auth-provider": entry.auth_provider is not None,
        "username": bool(entry.username),
        "as-user-extra": bool(entry.as_user_extra),
    }
    for field, is_set in unsupported.items():
        if is_set:
            raise RequestError(
                subject=subject,
                field=field,
                problem="is not supported",
                accepted="token, tokenFile, client-certificate with client-key, or exec",
            )


def _resolve_plugin(file: _File, entry: _ExecEntry) -> ExecPlugin:
    """A command with a slash is meant relative to its file; a bare name is looked up in PATH."""
    return ExecPlugin(
        api_version=entry.api_version or "client.authentication.k8s.io/v1",
        command=str(_beside(file, entry.command)) if "/" in entry.command else entry.command,
        arguments=tuple(entry.args or ()),
        environment=tuple((each.name, each.value) for each in entry.env or ()),
        wants_cluster=entry.provide_cluster_info,
        hint=" ".join(entry.install_hint.split()),
    )


def _pem(file: _File, inline: str, path: str, subject: str) -> Pem | None:
    """Return a certificate or key; what is written inline wins over a file."""
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error as error:
            raise RequestError(subject=subject, problem=f"data is not base64: {error}") from None
    return _beside(file, path) if path else None


def _beside(file: _File, path: str) -> Path:
    return file.path.parent / Path(path).expanduser()
