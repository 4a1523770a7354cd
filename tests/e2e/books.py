"""What is promised and what is bound, as the API server has it: the two must agree whatever happened.

`Books.mistakes` must be empty at every moment, `Books.leftovers` once everything has settled.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import httpx

__all__ = ["Books", "read_books"]

LEDGERS = "/apis/vramline.io/v1alpha1/gpuledgers"
REPORTS = "/apis/vramline.io/v1alpha1/gpureports"
ALLOCATION = "vramline.io/allocation"
RESERVATIONS = "vramline-reservations"
"""Whose pods hold devices and no memory."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """A stored promise."""

    node: str
    gpu: str
    mib: int
    pod_uid: str


@dataclass(frozen=True, slots=True)
class Books:
    """Pods, then ledgers: a claim is stored before its pod is bound, so it must be there when read later."""

    pods: dict[str, Document]
    claims: frozenset[Claim]
    totals: dict[str, int]

    def mistakes(self) -> list[str]:
        """Return what must never be so, not even for a moment."""
        return [*self._over_promised(), *self._bound_without_claim()]

    def leftovers(self) -> list[str]:
        """Return what must not stay so: pods that wait, promises to nobody, two promises to one pod."""
        found = [f"{_name(pod)} waits" for pod in self.pods.values() if not pod["spec"].get("nodeName")]
        for claim in self.claims:
            pod = self.pods.get(claim.pod_uid)
            if pod is None:
                found.append(f"{claim} is of no pod")
            elif pod["spec"].get("nodeName") != claim.node:
                found.append(f"{claim} is of {_name(pod)} on {pod['spec'].get('nodeName')}")
        return found

    def _over_promised(self) -> list[str]:
        promised: dict[str, int] = defaultdict(int)
        for claim in self.claims:
            promised[claim.gpu] += claim.mib
        return [
            f"{gpu} of {self.totals[gpu]} MiB has promised {mib}"
            for gpu, mib in promised.items()
            if mib > self.totals[gpu]
        ]

    def _bound_without_claim(self) -> list[str]:
        """A claim is stored before its pod is bound and removed after it ended."""
        found = []
        for uid, pod in self.pods.items():
            node = pod["spec"].get("nodeName")
            if not node or "deletionTimestamp" in pod["metadata"]:
                continue
            said = json.loads(pod["metadata"].get("annotations", {}).get(ALLOCATION, '{"gpus": []}'))
            bound = {(share["uuid"], share["mib"]) for share in said["gpus"]}
            claimed = {(claim.gpu, claim.mib) for claim in self.claims if claim.pod_uid == uid}
            if claimed != bound or not bound:
                found.append(f"{_name(pod)} is bound to {sorted(bound)}, but claims {sorted(claimed)}")
        return found


def read_books(admin: httpx.Client) -> Books:
    """Read everything from the API server itself."""
    everything = _items(admin, "/api/v1/pods")
    pods = {pod["metadata"]["uid"]: pod for pod in everything if pod["metadata"]["namespace"] != RESERVATIONS}
    totals = {
        gpu["uuid"]: gpu["totalMiB"] for report in _items(admin, REPORTS) for gpu in report["status"]["gpus"]
    }
    return Books(pods, _claims(admin), totals)


def _claims(admin: httpx.Client) -> frozenset[Claim]:
    return frozenset(
        Claim(ledger["metadata"]["name"], gpu, claim["mib"], claim["podUID"])
        for ledger in _items(admin, LEDGERS)
        for gpu, claims in ledger["spec"].get("claims", {}).items()
        for claim in claims
    )


def _items(admin: httpx.Client, path: str) -> list[Document]:
    found: list[Document] = admin.get(path).raise_for_status().json()["items"]
    return found


def _name(pod: Document) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
