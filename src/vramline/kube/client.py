"""Calls to the API server, typed, and honest about what is known after a failure.

Reads are tried again where that can help (no connection, 429, 5xx), with growing jittered waits. A write is
sent once, always: what may have happened is `AmbiguousError`, and only the caller can find out by reading.
The one exception is 401 with credentials that can be renewed: who is not let in has not written anything.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from vramline import __version__
from vramline.errors import RequestError
from vramline.kube.credentials import Credentials, CredentialsError, TlsContexts
from vramline.kube.failures import (
    AmbiguousError,
    ApiError,
    ConflictError,
    GoneError,
    UnavailableError,
    failure_of,
    read_status,
)
from vramline.kube.http import Address, Answer, AnswerLostError, Connection, NotSentError, Pool, Stream, dial
from vramline.kube.objects import (
    PODS,
    Document,
    Item,
    Listing,
    ObjectKey,
    Resource,
    Stored,
    Unreadable,
    read_item,
    read_page,
)
from vramline.kube.pace import Pace, delay_s
from vramline.kube.target import Target
from vramline.kube.watches import Watch

__all__ = ["Binding", "KubeClient", "Patch", "Preconditions", "Selection", "Timing"]

T = TypeVar("T")

_LONGEST_RETRY_AFTER_S = 30.0


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long calls may take."""

    connect_s: float = 5.0
    read_s: float = 30.0
    write_s: int = 10
    """After this the API server gives up a write; we wait two seconds longer for it to say so, so that a
    write does not happen long after it was called ambiguous."""
    attempts: int = 4
    """How often a read is tried in all."""
    pace: Pace = Pace(first_s=0.25, most_s=5.0)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """Return the selectors as parameters of a list or watch."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}


class Preconditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What must still be true of an object for its deletion to happen."""

    uid: str | None = None
    resource_version: str | None = None


class Patch(msgspec.Struct, frozen=True):
    """A change to be merged by the API server."""

    content: object
    media_type: str = "application/merge-patch+json"


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's way to its node. UID and version are preconditions; annotations land in the same write."""

    pod: ObjectKey
    uid: str
    node: str
    version: int | None = None
    annotations: dict[str, str] = {}

    def document(self) -> Document:
        """Return the v1 Binding."""
        metadata: Document = {"name": self.pod.name, "namespace": self.pod.namespace, "uid": self.uid}
        if self.version is not None:
            metadata["resourceVersion"] = str(self.version)
        if self.annotations:
            metadata["annotations"] = self.annotations
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without the credentials."""

    method: str
    path: str
    query: dict[str, str] = {}
    body: bytes = b""
    media_type: str = "application/json"

    @property
    def is_write(self) -> bool:
        return self.method != "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class KubeClient:
    """One API server, for any number of tasks of one event loop."""

    def __init__(
        self,
        target: Target,
        *,
        rng: random.Random,
        timing: Timing | None = None,
        user_agent: str = f"vramline/{__version__}",
    ) -> None:
        self.target = target
        self.timing = timing or Timing()
        self._rng = rng
        parts = urlsplit(target.cluster.server)
        self._prefix = parts.path.rstrip("/")
        port = parts.port or (80 if parts.scheme == "http" else 443)
        self._address = Address(parts.hostname or "", port, target.cluster.server_name)
        extra = "".join(f"{name}: {_one_line(value)}\r\n" for name, value in target.user.headers)
        self._headers = (
            f"Host: {parts.netloc}\r\nUser-Agent: {user_agent}\r\nAccept: application/json\r\n{extra}"
        )
        self._credentials = Credentials(target.user, target.cluster)
        self._tls = TlsContexts(target.cluster)
        self._pool = Pool(self._connect)
        self.writes: Counter[tuple[str, str, str]] = Counter()
        """By method, resource and how it ended: written, conflict, refused, unclear, unavailable."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections."""
        self._pool.close()

    # ── reads ────────────────────────────────────────────────────────────────────────────────────────
    async def get(self, resource: Resource[T], key: ObjectKey) -> Stored[T]:
        """Return one object; raises `RequestError` if its content cannot be read."""
        return await self._one(resource, _Call(method="GET", path=resource.path(key)))

    async def list(
        self, resource: Resource[T], selection: Selection | None = None, *, page: int = 500
    ) -> Listing[T]:
        """Return all objects as of one moment, read in pages (0: all at once)."""
        chosen = selection or Selection()
        path = resource.collection(chosen.namespace)
        query = chosen.query() | ({"limit": str(page)} if page else {})
        items: list[Item[T]] = []
        while True:
            try:
                answer = await self._read(_Call(method="GET", path=path, query=query))
            except GoneError:
                if "continue" not in query:
                    raise
                return await self.list(resource, selection, page=0)  # pages came too slowly: all at once
            more, version, token = read_page(resource, answer.body)
            items += more
            if not token:
                return _listing(items, version)
            query["continue"] = token

    @contextlib.asynccontextmanager
    async def watch(
        self, resource: Resource[T], selection: Selection, query: dict[str, str], *, idle_s: float
    ) -> AsyncIterator[Watch[T]]:
        """Open a watch; `reflector` knows what to do about everything that can befall one."""
        wanted = selection.query() | {"watch": "true", "allowWatchBookmarks": "true"} | query
        call = _Call(method="GET", path=resource.collection(selection.namespace), query=wanted)
        try:
            request = await self._request(call)
            async with self._pool.stream(request, timeout_s=self.timing.read_s) as stream:
                if stream.code != 200:
                    raise await self._refusal(call, stream)
                yield Watch(resource, stream, str(call), idle_s)
        except (NotSentError, AnswerLostError, CredentialsError) as error:
            raise UnavailableError(f"{call}: {error}") from error

    async def version(self) -> str:
        """Return the API server's version, such as `v1.35.8`."""
        answer = await self._read(_Call(method="GET", path="/version"))
        return msgspec.json.decode(answer.body, type=_Version).git_version

    async def look(self, path: str) -> Document:
        """Return the object at a path as it is."""
        answer = await self._read(_Call(method="GET", path=path))
        return msgspec.json.decode(answer.body, type=Document)

    async def ask(self, path: str, question: Document) -> Document:
        """Post a review, which stores nothing, and return its answer."""
        call = _Call(method="POST", path=path, body=msgspec.json.encode(question))
        return msgspec.json.decode((await self._write(call)).body, type=Document)

    # ── writes ───────────────────────────────────────────────────────────────────────────────────────
    async def create(self, resource: Resource[T], value: T | Document, *, namespace: str = "") -> Stored[T]:
        """Create an object; `ConflictError.already_exists` if its name is taken."""
        body = msgspec.json.encode(_document_of(resource, value))
        return await self._one(resource, _Call(method="POST", path=resource.collection(namespace), body=body))

    async def update(
        self,
        resource: Resource[T],
        key: ObjectKey,
        value: T | Document,
        *,
        version: int | None = None,
        subresource: str = "",
    ) -> Stored[T]:
        """Replace an object, or its `status`, if it is still at `version` (or at the version in `value`)."""
        document = _document_of(resource, value)
        if version is not None:
            document = _with_version(document, version)
        body = msgspec.json.encode(document)
        path = resource.path(key, subresource)
        return await self._one(resource, _Call(method="PUT", path=path, body=body))

    async def patch(
        self, resource: Resource[T], key: ObjectKey, patch: Patch, *, subresource: str = ""
    ) -> Stored[T]:
        """Merge a change into an object."""
        call = _Call(
            method="PATCH",
            path=resource.path(key, subresource),
            body=msgspec.json.encode(patch.content),
            media_type=patch.media_type,
        )
        return await self._one(resource, call)

    async def delete(
        self,
        resource: Resource[T],
        key: ObjectKey,
        *,
        preconditions: Preconditions | None = None,
        grace_s: int | None = None,
    ) -> None:
        """Delete an object, or start its deletion."""
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions is not None:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        body = msgspec.json.encode(options)
        await self._write(_Call(method="DELETE", path=resource.path(key), body=body))

    async def bind(self, binding: Binding) -> None:
        """Put a pod on its node; `ConflictError` if it is bound already or is not what it was."""
        body = msgspec.json.encode(binding.document())
        await self._write(_Call(method="POST", path=PODS.path(binding.pod, "binding"), body=body))

    async def evict(self, pod: ObjectKey, uid: str, *, dry_run: bool = False) -> None:
        """Ask a pod to leave; `ThrottledError` where a PodDisruptionBudget does not allow it now.

        With `dry_run` nothing happens, and the answer is the same.
        """
        options: Document = {"preconditions": Preconditions(uid=uid)}
        if dry_run:
            options["dryRun"] = ["All"]
        eviction: Document = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        body = msgspec.json.encode(eviction)
        await self._write(_Call(method="POST", path=PODS.path(pod, "eviction"), body=body))

    # ── the way there and back ───────────────────────────────────────────────────────────────────────
    async def _one(self, resource: Resource[T], call: _Call) -> Stored[T]:
        answer = await (self._write(call) if call.is_write else self._read(call))
        try:
            item = read_item(resource, answer.body)
        except UnavailableError as error:
            raise _unclear(call, error) from error
        if isinstance(item, Unreadable):
            raise RequestError(subject=f"{resource.kind} {item.key}", problem=item.problem)
        return item

    async def _read(self, call: _Call) -> Answer:
        failures = 0
        while True:
            try:
                return await self._send(call, timeout_s=self.timing.read_s)
            except UnavailableError as error:
                failures += 1
                if failures >= self.timing.attempts:
                    raise
                least_s = min(error.retry_after_s, _LONGEST_RETRY_AFTER_S) if error.code == 429 else 0.0
                await asyncio.sleep(least_s + delay_s(self.timing.pace, failures, self._rng))

    async def _write(self, call: _Call) -> Answer:
        limited = msgspec.structs.replace(call, query=call.query | {"timeout": f"{self.timing.write_s}s"})
        try:
            answer = await self._send(limited, timeout_s=self.timing.write_s + 2.0)
        except ApiError as error:
            self.writes[call.method, _resource_in(call.path), _ending(error)] += 1
            raise
        self.writes[call.method, _resource_in(call.path), "written"] += 1
        return answer

    async def _send(self, call: _Call, *, timeout_s: float) -> Answer:
        answer = await self._exchange(call, timeout_s)
        if answer.code == 401 and self._credentials.can_be_renewed:
            self._forget_who_we_are()
            answer = await self._exchange(call, timeout_s)
        if answer.code < 400:
            return answer
        raise _failure(call, answer.code, answer.headers, answer.body)

    async def _exchange(self, call: _Call, timeout_s: float) -> Answer:
        try:
            return await self._pool.exchange(await self._request(call), timeout_s=timeout_s)
        except (NotSentError, CredentialsError) as error:
            raise UnavailableError(f"{call}: {error}") from error
        except AnswerLostError as error:
            raise _unclear(call, error) from error

    async def _connect(self) -> Connection:
        shown = await self._credentials.present()
        context = self._tls.current(shown.certificate)
        return await dial(self._address, context, timeout_s=self.timing.connect_s)

    async def _request(self, call: _Call) -> bytes:
        """Return the whole request as bytes."""
        shown = await self._credentials.present()
        query = f"?{urlencode(call.query)}" if call.query else ""
        head = f"{call.method} {self._prefix}{call.path}{query} HTTP/1.1\r\n{self._headers}"
        if shown.token:
            head += f"Authorization: Bearer {_one_line(shown.token)}\r\n"
        if call.body:
            head += f"Content-Type: {call.media_type}\r\nContent-Length: {len(call.body)}\r\n"
        return f"{head}\r\n".encode("latin-1") + call.body

    def _forget_who_we_are(self) -> None:
        """Ask for new credentials next time; connections made with the old ones are not used again."""
        self._credentials.forget()
        self._pool.close()

    async def _refusal(self, call: _Call, stream: Stream) -> ApiError:
        body = b""
        while piece := await stream.read(self.timing.read_s):
            body += piece
        if stream.code == 401:
            self._forget_who_we_are()
        return _failure(call, stream.code, stream.headers, body)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str


def _listing(items: Iterable[Item[T]], version: int) -> Listing[T]:
    readable: list[Stored[T]] = []
    unreadable: list[Unreadable] = []
    for item in items:
        if isinstance(item, Unreadable):
            unreadable.append(item)
        else:
            readable.append(item)
    return Listing(items=tuple(readable), unreadable=tuple(unreadable), version=version)


def _document_of(resource: Resource[T], value: T | Document) -> object:
    return value if isinstance(value, dict) else resource.encode(value)


def _with_version(document: object, version: int) -> Document:
    """Return the object with the version that it must still have."""
    plain = msgspec.to_builtins(document)
    plain["metadata"] = {**plain.get("metadata", {}), "resourceVersion": str(version)}
    return plain  # type: ignore[no-any-return] # to_builtins of an object is a mapping


def _resource_in(path: str) -> str:
    """Return what a path is about: the plural of the kind, and the subresource where there is one.

    >>> _resource_in("/api/v1/namespaces/ns/pods/p/binding")
    'pods/binding'
    >>> _resource_in("/apis/vramline.io/v1alpha1/gpuledgers/n1")
    'gpuledgers'
    """
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    parts = parts[2:] if len(parts) > 2 and parts[0] == "namespaces" else parts
    return "/".join(parts[::2])


def _ending(error: ApiError) -> str:
    match error:
        case ConflictError():
            return "conflict"
        case AmbiguousError():
            return "unclear"
        case UnavailableError():
            return "unavailable"
        case _:
            return "refused"


def _failure(call: _Call, code: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    after = headers.get("retry-after", "")
    wait_s = float(after) if after.isascii() and after.isdigit() else None
    return failure_of(str(call), code, read_status(body), is_write=call.is_write, retry_after_s=wait_s)


def _unclear(call: _Call, error: Exception) -> ApiError:
    """Return the error for a call whose answer cannot be known."""
    if call.is_write:
        return AmbiguousError(f"{call}: {error} (may or may not be done)")
    return UnavailableError(f"{call}: {error}")


def _one_line(value: str) -> str:
    """A line break in a header would start another one."""
    if "\r" in value or "\n" in value:
        raise RequestError(subject="credentials", problem="contain a line break")
    return value
