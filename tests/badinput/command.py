"""What the command said, and the good cluster that every bad object is thrown at."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["GOOD", "BesideGood", "Said", "Simulate"]

GOOD = """
apiVersion: v1
kind: Node
metadata: {name: good, annotations: {vramline.io/gpus-physical: "1x32600"}}
status: {allocatable: {nvidia.com/gpu: "1"}}
---
apiVersion: v1
kind: Node
metadata: {name: spare, annotations: {vramline.io/gpus-physical: "1x32600"}}
status: {allocatable: {nvidia.com/gpu: "1"}}
---
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: good, annotations: {gpu-memory: "1000"}}
spec: {containers: [{name: c}]}
"""


@dataclass(frozen=True)
class Said:
    """What the command printed, and how it ended."""

    status: int
    out: str
    errors: list[str]
    """Lines of standard error that are errors, without the word."""
    others: list[str]

    @property
    def good_is_bound(self) -> bool:
        return any(line.startswith("Bound") and "good/good" in line for line in self.out.splitlines())


Simulate = Callable[..., Said]
"""Runs `vramline simulate` with these arguments."""
BesideGood = Callable[..., Said]
"""Runs it with the good cluster in one file and this content (and name) in another."""
