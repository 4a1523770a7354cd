"""Which objects are read and written, where they live, and how one of them is decoded.

A `Resource` joins an API path with the translation in `wire`. What the API server says *about* an object
(name, UID, version) is read apart from its content, so that an object whose content cannot be read is still
known by name, and its end is noticed.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from vramline.errors import RequestError
from vramline.kube.failures import UnavailableError
from vramline.wire.bind_request_v1alpha1 import BindRequest, decode_bind_request, encode_bind_request
from vramline.wire.decoding import convert_document
from vramline.wire.keys import GROUP, INITIAL_EVENTS_END
from vramline.wire.kubernetes import NodeObject, ObjectMeta, PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger, LedgerDocument, decode_ledger, encode_ledger, ledger_in
from vramline.wire.pods import read_sighting
from vramline.wire.report_v1alpha1 import GpuReport, ReportDocument, decode_report, encode_report, report_in
from vramline.wire.times import Timestamp

__all__ = [
    "BIND_REQUESTS",
    "CRDS",
    "EVENTS",
    "EVERYTHING",
    "LEASES",
    "LEDGERS",
    "NAMESPACES",
    "NODES",
    "PODS",
    "POD_SIGHTINGS",
    "REPORTS",
    "STORAGE_CAPACITIES",
    "Body",
    "Document",
    "Item",
    "LeaseObject",
    "LeaseSpec",
    "Listing",
    "ObjectKey",
    "PlainObject",
    "Quick",
    "Resource",
    "Stored",
    "Unreadable",
    "WatchLine",
    "format_micro_time",
    "read_bookmark",
    "read_item",
    "read_line",
    "read_page",
]

T = TypeVar("T")
EVERYTHING = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
"""Asks for a watch that starts with everything there is, ended by a bookmark."""
Body = bytes | msgspec.Raw
Document = dict[str, object]
"""A whole object as plain mappings and lists."""


class ObjectKey(msgspec.Struct, frozen=True, order=True):
    """Name of an object; `namespace` is empty for objects of the whole cluster."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Stored(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An object as the API server holds it."""

    key: ObjectKey
    uid: str
    version: int
    """The resourceVersion: larger is later, and the precondition of the next write."""
    value: T


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An object whose content breaks the rules of its kind. It is there, and that is all that is known."""

    key: ObjectKey
    uid: str
    version: int
    problem: str


Item = Stored[T] | Unreadable


class Listing(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """All objects of a list, and the version of which it is true."""

    items: tuple[Stored[T], ...]
    unreadable: tuple[Unreadable, ...]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[T]):
    """One kind of object at the API server."""

    group: str = ""
    version: str = "v1"
    kind: str
    plural: str
    namespaced: bool = False
    decode: Callable[[Body], T]
    """Raises `RequestError` or msgspec's errors for content that breaks the rules."""
    quick: "Quick[Any, T] | None" = None
    """How an object that is as it should be is read in one go."""
    encode: Callable[[T], object] = lambda value: value
    """Into something that msgspec writes as the whole JSON object."""

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """Return the path of all objects, or of those in one namespace."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{root}{inside}/{self.plural}"

    def path(self, key: ObjectKey, subresource: str = "") -> str:
        """Return the path of one object or of a part of it."""
        if self.namespaced != bool(key.namespace):
            need = "needs" if self.namespaced else "has no"
            raise RequestError(
                subject=f"{self.kind} {key}", field="metadata.namespace", problem=f"a {self.kind} {need} one"
            )
        below = f"/{subresource}" if subresource else ""
        return f"{self.collection(key.namespace)}/{quote(key.name, safe='')}{below}"


# ── what the API server says about every object ──────────────────────────────────────────────────────
class _AnyMeta(Protocol):
    """Metadata among other content."""

    @property
    def name(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def resource_version(self) -> str | None: ...


class _AnyObject(Protocol):
    @property
    def metadata(self) -> _AnyMeta: ...


S = TypeVar("S", bound=_AnyObject)


class _QuickLine(msgspec.Struct, Generic[S], frozen=True):
    type: str
    object: S


class Quick(Generic[S, T]):
    """Reads objects of one kind straight from their bytes, head and content together.

    It returns None for whatever is not as it should be: the long way then finds out what is wrong.
    """

    def __init__(self, struct: type[S], translate: Callable[[S], T]) -> None:
        self._object = msgspec.json.Decoder(struct)
        self._line = msgspec.json.Decoder(_QuickLine[struct])  # type: ignore[valid-type]
        self._translate = translate

    def read(self, raw: Body) -> Stored[T] | None:
        """Read one object."""
        try:
            return self._store(self._object.decode(raw))
        except (RequestError, msgspec.DecodeError, RecursionError):
            return None

    def read_line(self, line: bytes) -> "WatchLine[T] | None":
        """Read one line of a watch that is about an object."""
        try:
            read = self._line.decode(line)
            item = self._store(read.object) if read.type in _ABOUT_OBJECTS else None
        except (RequestError, msgspec.DecodeError, RecursionError):
            return None
        return None if item is None else WatchLine(read.type, item)

    def _store(self, read: S) -> Stored[T] | None:
        meta = read.metadata
        version = meta.resource_version or ""
        if not (version.isascii() and version.isdigit()):
            return None
        key = ObjectKey(meta.name or "", meta.namespace or "")
        return Stored(key=key, uid=meta.uid or "", version=int(version), value=self._translate(read))


class _Meta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_version: int
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta


class _PageMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_version: int
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    metadata: _PageMeta
    items: list[msgspec.Raw] | None = None


class _RawLine(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class WatchLine(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and what it is about."""

    type: str
    object: Item[T] | msgspec.Raw
    """An object, if it could be read in one go."""

    def item(self, resource: Resource[T]) -> Item[T]:
        """Return the object that the line is about; raises `UnavailableError` where there is none."""
        return read_item(resource, self.object) if isinstance(self.object, msgspec.Raw) else self.object


_HEAD = msgspec.json.Decoder(_Head, strict=False)  # versions are numbers in quotes
_PAGE = msgspec.json.Decoder(_Page, strict=False)
_LINE = msgspec.json.Decoder(_RawLine)
_ABOUT_OBJECTS = ("ADDED", "MODIFIED", "DELETED")


def read_line(resource: Resource[T], line: bytes) -> WatchLine[T]:
    """Read one line of a watch."""
    quick = None if resource.quick is None else resource.quick.read_line(line)
    if quick is not None:
        return quick
    try:
        raw = _LINE.decode(line)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"a line of a watch cannot be read: {error}") from error
    return WatchLine(raw.type, raw.object)


def read_page(resource: Resource[T], body: bytes) -> tuple[list[Item[T]], int, str]:
    """Read a page of a list: its items, its version, and the token of the next page (empty: the last)."""
    try:
        page = _PAGE.decode(body)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"a list of {resource.plural} cannot be read: {error}") from error
    items = [read_item(resource, raw) for raw in page.items or ()]
    return items, page.metadata.resource_version, page.metadata.continue_


def read_item(resource: Resource[T], raw: Body) -> Item[T]:
    """Read one object; content that breaks the rules makes it `Unreadable`, not an error."""
    quick = None if resource.quick is None else resource.quick.read(raw)
    if quick is not None:
        return quick
    head = _read_head(raw)
    key = ObjectKey(head.name, head.namespace)
    try:
        value = resource.decode(raw)
    except (RequestError, msgspec.DecodeError, RecursionError) as error:
        problem = _explain(f"{resource.kind} {key}", error)
        return Unreadable(key=key, uid=head.uid, version=head.resource_version, problem=problem)
    return Stored(key=key, uid=head.uid, version=head.resource_version, value=value)


def read_bookmark(raw: Body) -> tuple[int, bool]:
    """Return a bookmark's version, and whether it ends the initial events."""
    head = _read_head(raw)
    return head.resource_version, (head.annotations or {}).get(INITIAL_EVENTS_END) == "true"


def _read_head(raw: Body) -> _Meta:
    try:
        return _HEAD.decode(raw).metadata
    except msgspec.DecodeError as error:
        raise UnavailableError(f"the API server sent something that is no object: {error}") from error


def _explain(subject: str, error: Exception) -> str:
    if isinstance(error, RequestError):
        return str(
            RequestError(
                subject=subject,
                field=error.field,
                value=error.value,
                problem=error.problem,
                accepted=error.accepted,
            )
        )
    return f"{subject}: {error}"


# ── structs that only this room needs ────────────────────────────────────────────────────────────────
class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who leads, and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: Timestamp | None = None
    renew_time: Timestamp | None = None
    lease_transitions: int | None = None


class LeaseObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """coordination.k8s.io/v1 Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class PlainObject(msgspec.Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta = ObjectMeta()


def format_micro_time(microseconds: int) -> str:
    """Write microseconds since the epoch as a MicroTime, which always has six decimals.

    >>> format_micro_time(60_000_000)
    '1970-01-01T00:01:00.000000Z'
    """
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _struct(kind: type[T], name: str) -> Callable[[Body], T]:
    """Return a decoder straight from bytes; only a failure is looked at again, for a better message."""
    decoder = msgspec.json.Decoder(kind)

    def decode(raw: Body) -> T:
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError:
            return convert_document(msgspec.json.decode(raw), kind, subject=name)

    return decode


def _document(decode: Callable[[object], T]) -> Callable[[Body], T]:
    """Return a decoder for a kind of our own, whose translation starts from parsed JSON."""
    return lambda raw: decode(msgspec.json.decode(raw))


_POD = _struct(PodObject, "Pod")

PODS: Resource[PodObject] = Resource(
    kind="Pod", plural="pods", namespaced=True, decode=_POD, quick=Quick(PodObject, lambda read: read)
)
POD_SIGHTINGS = Resource(
    kind="Pod",
    plural="pods",
    namespaced=True,
    decode=lambda raw: read_sighting(_POD(raw)),
    quick=Quick(PodObject, read_sighting),
)
"""Pods as placement sees them: what it does not look at is not kept, of tens of thousands."""
NODES: Resource[NodeObject] = Resource(
    kind="Node",
    plural="nodes",
    decode=_struct(NodeObject, "Node"),
    quick=Quick(NodeObject, lambda read: read),
)
NAMESPACES = Resource(kind="Namespace", plural="namespaces", decode=_struct(PlainObject, "Namespace"))
LEASES = Resource(
    group="coordination.k8s.io",
    kind="Lease",
    plural="leases",
    namespaced=True,
    decode=_struct(LeaseObject, "Lease"),
)
EVENTS = Resource(
    group="events.k8s.io",
    kind="Event",
    plural="events",
    namespaced=True,
    decode=_struct(PlainObject, "Event"),
)
STORAGE_CAPACITIES = Resource(
    group="storage.k8s.io",
    kind="CSIStorageCapacity",
    plural="csistoragecapacities",
    namespaced=True,
    decode=_struct(PlainObject, "CSIStorageCapacity"),
)
CRDS = Resource(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    decode=_struct(PlainObject, "CustomResourceDefinition"),
)
REPORTS: Resource[GpuReport] = Resource(
    group=GROUP,
    version="v1alpha1",
    kind="GpuReport",
    plural="gpureports",
    decode=_document(decode_report),
    quick=Quick(ReportDocument, report_in),
    encode=encode_report,
)
LEDGERS: Resource[GpuLedger] = Resource(
    group=GROUP,
    version="v1alpha1",
    kind="GpuLedger",
    plural="gpuledgers",
    decode=_document(decode_ledger),
    quick=Quick(LedgerDocument, ledger_in),
    encode=encode_ledger,
)
BIND_REQUESTS: Resource[BindRequest] = Resource(
    group=GROUP,
    version="v1alpha1",
    kind="BindRequest",
    plural="bindrequests",
    namespaced=True,
    decode=_document(decode_bind_request),
    encode=encode_bind_request,
)
