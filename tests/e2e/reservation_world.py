"""A cluster whose cards are handed out by NVIDIA's device plugin: stand-in kubelets, and our reservations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from controlplane.kubelets import StandInKubelets
from controlplane.vramline import add_gpu_node, apply_crds, report_cards

__all__ = ["NAMESPACE", "RESERVES", "Document", "World", "open_world"]

NAMESPACE = "vramline-reservations"
RESERVES = {"VRAMLINE_RESERVATION_IMAGE": "vramline:test", "VRAMLINE_RELEASE_GRACE": "1s"}
"""What switches reservation pods on; and what is freed is free soon."""
REQUESTS = "/apis/vramline.io/v1alpha1/bindrequests"
PODS = "/api/v1/namespaces/default/pods"

Document = dict[str, Any]


class World:
    """What a test does to the cluster, and sees of it."""

    def __init__(self, admin: httpx.Client, kubelets: StandInKubelets) -> None:
        self.admin = admin
        self.kubelets = kubelets
        self._cards: dict[str, tuple[int, ...]] = {}

    def add_node(self, name: str, *totals: int, replicas: int = 1) -> list[str]:
        """Add a node with cards of these sizes; return their UUIDs."""
        cards = [f"GPU-{name}-{index}" for index in range(len(totals))]
        self.kubelets.add_node(name, *cards, replicas=replicas)
        add_gpu_node(self.admin, name, *totals, advertised=len(totals) * replicas)
        self._cards[name] = totals
        return cards

    def report(self) -> None:
        """Say, as the agents do, that nothing uses the cards, so that what ended is seen to be free."""
        for name, totals in self._cards.items():
            report_cards(self.admin, name, [{"totalMiB": t, "usedMiB": 0, "processes": []} for t in totals])

    def pod(self, name: str) -> Document:
        """Return a pod."""
        found: Document = self.admin.get(f"{PODS}/{name}").json()
        return found

    def create(self, pod: Document) -> None:
        """Create a pod."""
        self.admin.post(PODS, json=pod).raise_for_status()

    def end(self, *names: str) -> None:
        """Delete pods; their kubelet lets them go."""
        for name in names:
            self.admin.delete(f"{PODS}/{name}").raise_for_status()

    def card_of(self, name: str) -> str:
        """Return what a pod's containers are to see; empty: it is not bound."""
        return str(self.pod(name)["metadata"].get("annotations", {}).get("vramline.io/visible-devices", ""))

    def is_bound(self, name: str) -> bool:
        """Whether a pod is on a node."""
        return "nodeName" in self.pod(name)["spec"]

    def reservations(self) -> list[Document]:
        """Return the reservation pods that are not on their way out."""
        items: list[Document] = self.admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods").json()["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def held(self) -> list[str]:
        """Return the cards that reservation pods hold, by what they tell."""
        told = (pod["metadata"]["annotations"].get("vramline.io/reserved-gpu") for pod in self.reservations())
        return sorted(card for card in told if card)

    def request(self, name: str) -> Document:
        """Return the status of a pod's BindRequest; empty: there is none."""
        answer = self.admin.get(f"/apis/vramline.io/v1alpha1/namespaces/default/bindrequests/{name}")
        return dict(answer.json().get("status", {})) if answer.is_success else {}


@contextmanager
def open_world(admin: httpx.Client, kubelets: StandInKubelets) -> Iterator[World]:
    """Install our kinds and the namespace of reservation pods."""
    apply_crds(admin)
    admin.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}}).raise_for_status()
    account = {"metadata": {"name": "vramline-reserve"}}
    admin.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", json=account).raise_for_status()
    yield World(admin, kubelets)
