"""The scheduler extender's bodies, version 1.

The Go structs behind them carry no JSON tags: on the wire stand capitalised field names, while the pods
and nodes inside keep their usual lower case. Exactly those names are written; any case is read, as Go does.
"""

import contextlib
from typing import Any, TypeVar

import msgspec

from vramline.errors import RequestError
from vramline.wire.decoding import convert_document
from vramline.wire.kubernetes import PodObject

__all__ = [
    "MAX_SCORE",
    "AskedPod",
    "ExtenderArgs",
    "ExtenderBindingArgs",
    "ExtenderBindingResult",
    "ExtenderFilterResult",
    "ExtenderPreemptionArgs",
    "ExtenderPreemptionResult",
    "HostPriority",
    "LongArgs",
    "MetaPod",
    "MetaVictims",
    "NameLists",
    "NodeList",
    "read_asked_pod",
    "read_binding_args",
    "read_extender_args",
    "read_long_args",
    "read_preemption_args",
    "version_of_asked_pod",
]

T = TypeVar("T")
AskedPod = bytes | dict[str, Any]
"""A v1 Pod in a request: the text of its JSON, or parsed already."""

MAX_SCORE = 10
"""The highest score that kube-scheduler takes from an extender; the lowest is 0."""

_LISTS_KEPT = 4
_LONG = 2_000
"""Bytes: some hundred names."""

_ARGS = "ExtenderArgs"
_BINDING = "ExtenderBindingArgs"
_PREEMPTION = "ExtenderPreemptionArgs"


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """Full node objects, kept as they came so that they can be handed back unchanged."""

    items: list[dict[str, Any]] = []


class ExtenderArgs(msgspec.Struct, frozen=True, kw_only=True):
    """What filter and prioritize are asked: a pod, and nodes by name or as full objects."""

    pod: AskedPod
    """The v1 Pod, for `read_asked_pod`."""
    names: tuple[str, ...]
    """The nodes in question, in the order of the request."""
    nodes: NodeList | None = None
    """Set where full objects were sent; the answer then carries full objects too."""


class LongArgs(msgspec.Struct, frozen=True):
    """The same, with a list of names so long that it is better left as it came."""

    pod: AskedPod
    names: bytes
    """A JSON list."""


class ExtenderFilterResult(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The nodes that fit, and why the others do not. A node in neither map counts as beyond help."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    """Preemption may help here."""
    failed_and_unresolvable_nodes: dict[str, str] = {}
    """No preemption helps here."""
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """One node's score, 0 to `MAX_SCORE`."""

    host: str
    score: int


class ExtenderBindingArgs(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"pod_name": "PodName", "pod_namespace": "PodNamespace", "pod_uid": "PodUID", "node": "Node"},
):
    """Which pod to bind to which node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str


class ExtenderBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Empty when the pod is bound."""

    error: str = ""


class MetaPod(msgspec.Struct, frozen=True, rename={"uid": "UID"}):
    """A pod by its UID alone."""

    uid: str


class MetaVictims(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"pods": "Pods", "num_pdb_violations": "NumPDBViolations"},
):
    """The pods that would have to go from one node."""

    pods: list[MetaPod] = []
    num_pdb_violations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and per node the pods that kube-scheduler would evict for it."""

    pod: dict[str, Any]
    victims: dict[str, MetaVictims]


class ExtenderPreemptionResult(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The nodes on which the evictions help."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class _UsualArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """What kube-scheduler sends thousands of names in."""

    pod: msgspec.Raw
    node_names: msgspec.Raw
    nodes: None = None


class _AskedMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _AskedHead(msgspec.Struct, frozen=True):
    metadata: _AskedMeta = _AskedMeta()


_POD = msgspec.json.Decoder(PodObject)
_HEAD = msgspec.json.Decoder(_AskedHead)
_USUAL_BINDING = msgspec.json.Decoder(ExtenderBindingArgs)
_USUAL_ARGS = msgspec.json.Decoder(_UsualArgs)
_NAMES = msgspec.json.Decoder(tuple[str, ...])


class NameLists:
    """Lists of names that came lately: prioritize repeats what filter answered, thousands of names long.

    A list that comes again is the same tuple again, so that what is known of it can be found by identity.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, ...]] = {}

    def read(self, text: bytes) -> tuple[str, ...]:
        """Return the names in a JSON list; raises msgspec's errors."""
        names = self._known.get(text)
        return self._keep(text, _NAMES.decode(text)) if names is None else names

    def expect(self, names: tuple[str, ...]) -> None:
        """Be ready for a list that is about to come."""
        self._keep(msgspec.json.encode(names), names)

    def _keep(self, text: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(self._known) >= _LISTS_KEPT:
            del self._known[next(iter(self._known))]
        self._known[text] = names
        return names


def read_extender_args(body: bytes, lists: NameLists | None = None) -> ExtenderArgs:
    """Read the body of filter and prioritize; raise `RequestError` for what is none."""
    try:
        usual = _USUAL_ARGS.decode(body)
        names = (lists or NameLists()).read(bytes(usual.node_names))
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass  # unusual spelling, full objects, or wrong: what it is takes a closer look
    else:
        pod_text = bytes(usual.pod)
        if pod_text.startswith(b"{"):
            return ExtenderArgs(pod=pod_text, names=names)
    fields = _read_object(body, _ARGS)
    pod = _pod_of(fields, _ARGS)
    if fields.get("nodes") is not None:
        nodes = _convert(fields["nodes"], NodeList, _ARGS, "Nodes")
        names = tuple(_name_of(item, f"Nodes.items[{i}]") for i, item in enumerate(nodes.items))
        return ExtenderArgs(pod=pod, names=names, nodes=nodes)
    if fields.get("nodenames") is None:
        raise RequestError(
            subject=_ARGS, problem="has neither NodeNames nor Nodes", accepted="one of the two"
        )
    return ExtenderArgs(pod=pod, names=tuple(_convert(fields["nodenames"], list[str], _ARGS, "NodeNames")))


def read_long_args(body: bytes) -> LongArgs | None:
    """Read the body of filter and prioritize if it is the usual one, with a long list; None: it is not."""
    try:
        usual = _USUAL_ARGS.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    pod, names = bytes(usual.pod), bytes(usual.node_names)
    return LongArgs(pod, names) if len(names) >= _LONG and pod.startswith(b"{") else None


def version_of_asked_pod(pod: AskedPod) -> tuple[str, str]:
    """Return UID and resourceVersion as far as they are told; what cannot be read tells neither."""
    try:
        meta = (_HEAD.decode(pod) if isinstance(pod, bytes) else msgspec.convert(pod, _AskedHead)).metadata
    except (msgspec.DecodeError, RecursionError):
        return "", ""
    return meta.uid, meta.resource_version


def read_asked_pod(pod: AskedPod) -> PodObject:
    """Read the pod that is asked about."""
    if not isinstance(pod, bytes):
        return convert_document(pod, PodObject, subject="Pod")
    try:
        return _POD.decode(pod)
    except (msgspec.DecodeError, RecursionError):
        document = _read_object(pod, "Pod", folded=False)
        return convert_document(document, PodObject, subject="Pod")


def read_binding_args(body: bytes) -> ExtenderBindingArgs:
    """Read the body of bind."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        usual = _USUAL_BINDING.decode(body)
        if usual.pod_name and usual.pod_namespace and usual.pod_uid and usual.node:
            return usual
    fields = _read_object(body, _BINDING)
    told = {}
    for name in ("PodName", "PodNamespace", "PodUID", "Node"):
        value = _convert(fields.get(name.lower(), ""), str, _BINDING, name)
        if not value:
            raise RequestError(subject=_BINDING, field=name, problem="is missing or empty")
        told[name] = value
    return convert_document(told, ExtenderBindingArgs, subject=_BINDING)


def read_preemption_args(body: bytes) -> ExtenderPreemptionArgs:
    """Read the body of preempt; victims sent as full pods are reduced to their UIDs."""
    fields = _read_object(body, _PREEMPTION)
    pod = _pod_of(fields, _PREEMPTION)
    victims: dict[str, MetaVictims] = {}
    for field, read_uid in (("NodeNameToVictims", _uid_of_pod), ("NodeNameToMetaVictims", _uid_of_meta)):
        told = _convert(
            _given(fields, field.lower(), {}), dict[str, dict[str, Any] | None], _PREEMPTION, field
        )
        for node, listed in told.items():
            where = f"{field}[{node}]"
            inner = _fold(listed or {})
            pods = _convert(_given(inner, "pods", []), list[dict[str, Any]], _PREEMPTION, f"{where}.Pods")
            victims[node] = MetaVictims(
                pods=[MetaPod(read_uid(item, f"{where}.Pods[{i}]")) for i, item in enumerate(pods)],
                num_pdb_violations=_convert(
                    _given(inner, "numpdbviolations", 0), int, _PREEMPTION, f"{where}.NumPDBViolations"
                ),
            )
    return ExtenderPreemptionArgs(pod=pod, victims=victims)


def _read_object(body: bytes, subject: str, *, folded: bool = True) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestError(subject=subject, problem=f"is not JSON ({error})") from None
    fields = _convert(document, dict[str, Any], subject, "")
    return _fold(fields) if folded else fields


def _fold(fields: dict[str, Any]) -> dict[str, Any]:
    """Write every key in lower case; the last one of the same name wins, as in Go."""
    return {key.lower(): value for key, value in fields.items()}


def _given(fields: dict[str, Any], name: str, absent: object) -> object:
    """Return a field; null is absent, as in Go."""
    value = fields.get(name)
    return absent if value is None else value


def _pod_of(fields: dict[str, Any], subject: str) -> dict[str, Any]:
    if fields.get("pod") is None:
        raise RequestError(subject=subject, field="Pod", problem="is missing", accepted="a v1 Pod")
    return _convert(fields["pod"], dict[str, Any], subject, "Pod")


def _convert(value: object, kind: type[T], subject: str, field: str) -> T:
    """Convert one field, with its name in the path of an error."""
    try:
        return convert_document(value, kind, subject=subject)
    except RequestError as error:
        inner = f"{field}.{error.field}".replace(".[", "[").strip(".")
        raise RequestError(
            subject=subject, field=inner, value=error.value, problem=error.problem, accepted=error.accepted
        ) from None


def _name_of(node: dict[str, Any], where: str) -> str:
    return _word(node, ("metadata", "name"), _ARGS, where)


def _uid_of_pod(pod: dict[str, Any], where: str) -> str:
    return _word(pod, ("metadata", "uid"), _PREEMPTION, where)


def _uid_of_meta(pod: dict[str, Any], where: str) -> str:
    return _word(_fold(pod), ("uid",), _PREEMPTION, where)


def _word(value: object, path: tuple[str, ...], subject: str, where: str) -> str:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, str) and value:
        return value
    raise RequestError(subject=subject, field=".".join((where, *path)), problem="is missing or not a text")
