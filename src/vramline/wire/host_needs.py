"""What a pod needs of its node besides GPUs."""

from collections.abc import Sequence

from vramline.errors import RequestError
from vramline.model.pod import HostNeeds, SelectorTerm, Toleration
from vramline.wire.kubernetes import (
    Container,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PodToleration,
    Quantities,
)
from vramline.wire.quantities import MAX_HOST_AMOUNT, read_amount
from vramline.wire.stages import list_containers, list_stages

__all__ = ["read_host_needs"]

_SCALES = {"cpu": 1000, "memory": 1}
_VALUES = {
    "In": (1, None),
    "NotIn": (1, None),
    "Exists": (0, 0),
    "DoesNotExist": (0, 0),
    "Gt": (1, 1),
    "Lt": (1, 1),
}
"""How many values each operator takes, at least and at most."""
_NEVER = SelectorTerm("", "In", ())
"""A requirement that no node meets."""
_NAME_FIELD = "metadata.name"


def read_host_needs(spec: PodSpec, subject: str) -> HostNeeds:
    """Read CPU, memory, selectors, required node affinity and tolerations."""
    terms = _required_terms(spec)
    return HostNeeds(
        cpu_milli=_read_total(spec, "cpu", subject),
        memory_bytes=_read_total(spec, "memory", subject),
        node_selector=spec.node_selector or {},
        affinity=tuple(_read_term(term, subject) for term in terms),
        affinity_names=tuple(_read_names(term) for term in terms),
        tolerations=tuple(_read_toleration(each, subject) for each in spec.tolerations or ()),
    )


def _read_total(spec: PodSpec, resource: str, subject: str) -> int:
    """Apply Kubernetes' arithmetic: the neediest stage, plus overhead; a request of the pod itself wins."""
    overhead = _read(spec.overhead, resource, subject, "spec.overhead") or 0
    whole = None
    if spec.resources is not None:
        whole = _read(spec.resources.requests, resource, subject, "spec.resources.requests")
        if whole is None:
            whole = _read(spec.resources.limits, resource, subject, "spec.resources.limits")
    if whole is None:
        amounts = [_read_container(container, resource, subject) for container in list_containers(spec)]
        whole = max(sum(stage) for stage in list_stages(spec, amounts))
    if whole + overhead > MAX_HOST_AMOUNT:
        raise RequestError(
            subject=subject, field=f"requests.{resource} in all", problem="is too large to be true"
        )
    return whole + overhead


def _read_container(container: Container, resource: str, subject: str) -> int:
    needs = container.resources
    if needs is None:
        return 0
    requested = _read(needs.requests, resource, subject, f"container {container.name}: requests")
    if requested is None:
        requested = _read(needs.limits, resource, subject, f"container {container.name}: limits")
    return requested or 0


def _read(amounts: Quantities | None, resource: str, subject: str, where: str) -> int | None:
    if amounts is None or resource not in amounts:
        return None
    return read_amount(
        amounts[resource], subject=subject, field=f"{where}.{resource}", scale=_SCALES[resource]
    )


def _required_terms(spec: PodSpec) -> Sequence[NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return (required.node_selector_terms or ()) if required else ()


def _read_term(term: NodeSelectorTerm, subject: str) -> tuple[SelectorTerm, ...]:
    """Read one group of requirements. A group that can match nothing keeps a requirement that says so."""
    read = tuple(_read_requirement(each, subject) for each in term.match_expressions or ())
    names = [set(each.values or ()) for each in term.match_fields or () if _allows_names(each)]
    impossible = bool(names) and not set.intersection(*names)
    if impossible or not (read or term.match_fields):
        return (*read, _NEVER)
    return read


def _read_names(term: NodeSelectorTerm) -> tuple[str, ...]:
    names = [set(each.values or ()) for each in term.match_fields or () if _allows_names(each)]
    return tuple(sorted(set.intersection(*names))) if names else ()


def _allows_names(requirement: NodeSelectorRequirement) -> bool:
    return requirement.key == _NAME_FIELD and requirement.operator == "In"


def _read_requirement(requirement: NodeSelectorRequirement, subject: str) -> SelectorTerm:
    field = f"node affinity on {requirement.key}"
    if requirement.operator not in _VALUES:
        raise RequestError(
            subject=subject,
            field=field,
            value=requirement.operator,
            problem="is not an operator",
            accepted=", ".join(_VALUES),
        )
    values = tuple(requirement.values or ())
    least, most = _VALUES[requirement.operator]
    if len(values) < least or (most is not None and len(values) > most):
        raise RequestError(
            subject=subject,
            field=field,
            value=len(values),
            problem=f"is not the number of values that {requirement.operator} takes",
            accepted=str(most) if most is not None else f"{least} or more",
        )
    if requirement.operator in ("Gt", "Lt") and not values[0].lstrip("-").isdecimal():
        raise RequestError(subject=subject, field=field, value=values[0], problem="is not a whole number")
    return SelectorTerm(requirement.key, requirement.operator, values)


def _read_toleration(toleration: PodToleration, subject: str) -> Toleration:
    operator = toleration.operator or "Equal"
    if operator not in ("Equal", "Exists") or (operator == "Equal" and not toleration.key):
        raise RequestError(
            subject=subject,
            field="toleration",
            value=f"{toleration.key or ''} {operator}",
            problem="is not understood",
            accepted="operator Equal with a key, or Exists",
        )
    return Toleration(toleration.key or "", operator, toleration.value or "", toleration.effect or "")
