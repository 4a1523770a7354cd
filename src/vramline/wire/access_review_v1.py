"""`SubjectAccessReview` of authorization.k8s.io/v1: whether somebody may do something."""

import msgspec

from vramline.wire.token_review_v1 import Person

__all__ = ["create_pods_review", "is_allowed", "list_pods_review", "page_review"]


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def page_review(person: Person, path: str) -> dict[str, object]:
    """Return the question whether somebody may look at a page; RBAC knows it by a path of no resource."""
    return _review(person, {"nonResourceAttributes": {"path": path, "verb": "get"}})


def list_pods_review(person: Person, namespace: str) -> dict[str, object]:
    """Return the question whether somebody may list the pods of a namespace; empty: of all namespaces."""
    asked = {"verb": "list", "resource": "pods", "namespace": namespace}
    return _review(person, {"resourceAttributes": asked})


def create_pods_review(person: Person, namespace: str) -> dict[str, object]:
    """Return the question whether somebody may create pods in a namespace."""
    asked = {"verb": "create", "resource": "pods", "namespace": namespace}
    return _review(person, {"resourceAttributes": asked})


def is_allowed(answer: object) -> bool:
    """Read the answer; an odd one allows nothing."""
    try:
        return msgspec.convert(answer, _Review).status.allowed
    except msgspec.ValidationError:
        return False


def _review(person: Person, asked: dict[str, object]) -> dict[str, object]:
    who = {"user": person.user, "uid": person.uid, "groups": list(person.groups), "extra": person.extra}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, **asked},
    }
