"""RFC 6902 `add`, the one operation that admission uses, as the API server applies it."""

import copy
from collections.abc import Iterable
from typing import Any

from vramline.wire.pod_patch import PatchOperation

__all__ = ["apply_patch"]


def apply_patch(document: dict[str, Any], patch: Iterable[PatchOperation]) -> dict[str, Any]:
    """Return the changed document; a path that leads nowhere is a KeyError or IndexError."""
    changed = copy.deepcopy(document)
    for operation in patch:
        assert operation.op == "add"
        *parents, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]
        ]
        target: Any = changed
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target[step]
        assert isinstance(target, dict)
        target[last] = copy.deepcopy(operation.value)
    return changed
