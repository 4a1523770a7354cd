"""Stand-ins for kubelets with NVIDIA's device plugin, as far as devices are concerned.

Like the device manager they hand out any free device id, whichever comes first, reject what they have none
for, and free what ended. Like the program in a reservation pod they write its card's UUID onto it.
"""

import datetime as dt
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from controlplane.plane import ControlPlane

__all__ = ["StandInKubelets", "run_kubelets"]

Document = dict[str, Any]
MERGE = {"Content-Type": "application/merge-patch+json"}
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
RESERVED = "vramline.io/reserved-gpu"
FOR_KAI = "run.ai/reserve_for_gpu_index"


class StandInKubelets:
    """The kubelets of some nodes, in one thread."""

    def __init__(self, client: httpx.Client, watcher: httpx.Client, *, seed: int = 1) -> None:
        self.given: dict[str, list[str]] = {}
        """Device ids by pod UID."""
        self.names: dict[str, str] = {}
        self.rejected: list[str] = []
        self.is_mute = False
        """Whether reservation pods get their device but never tell it."""
        self.choose: Callable[[list[str]], str] | None = None
        """How a device is chosen; None: at random."""
        self._client = client
        self._watcher = watcher
        self._random = random.Random(seed)
        self._devices: dict[str, list[str]] = {}
        self._started: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def add_node(self, name: str, *cards: str, replicas: int = 1) -> None:
        """Take over a node: every card is so many devices."""
        ids = cards if replicas == 1 else [f"{card}::{i}" for card in cards for i in range(replicas)]
        with self._lock:
            self._devices[name] = list(ids)

    def reboot(self, name: str) -> None:
        """Forget what was given on a node: pods with devices are rejected, as after a lost checkpoint."""
        for pod in self._pods():
            if pod["spec"].get("nodeName") == name and _wanted(pod):
                with self._lock:
                    self.given.pop(pod["metadata"]["uid"], None)
                self._reject(pod, "node was rebooted")

    def cards_of(self, *, namespace: str = "", name: str = "") -> list[str]:
        """Return the cards behind the devices of pods, by namespace or by name."""
        with self._lock:
            chosen = [
                device
                for uid, ids in self.given.items()
                for device in ids
                if self.names[uid].startswith(f"{namespace}/" if namespace else "")
                and (not name or self.names[uid].endswith(f"/{name}"))
            ]
        return sorted(device.partition("::")[0] for device in chosen)

    def run(self) -> None:
        """Serve until told to stop."""
        while not self._stop.is_set():
            try:
                self._follow()
            except (httpx.TransportError, httpx.StreamError):
                continue

    def stop(self) -> None:
        """Stop at the next event."""
        self._stop.set()

    def _pods(self) -> list[Document]:
        found: list[Document] = self._client.get("/api/v1/pods").json()["items"]
        return found

    def _follow(self) -> None:
        listed = self._client.get("/api/v1/pods").json()
        there = {pod["metadata"]["uid"] for pod in listed["items"]}
        with self._lock:
            self.given = {uid: ids for uid, ids in self.given.items() if uid in there}
        for pod in listed["items"]:
            self._see(pod)
        query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        with self._watcher.stream("GET", "/api/v1/pods", params={**query, "timeoutSeconds": "5"}) as answer:
            for line in answer.iter_lines():
                if self._stop.is_set():
                    return
                event = json.loads(line)
                if event["type"] == "DELETED":
                    with self._lock:
                        self.given.pop(event["object"]["metadata"]["uid"], None)
                elif event["type"] in ("ADDED", "MODIFIED"):
                    self._see(event["object"])

    def _see(self, pod: Document) -> None:
        meta, phase = pod["metadata"], pod.get("status", {}).get("phase")
        if pod["spec"].get("nodeName") not in self._devices:
            return
        if "deletionTimestamp" in meta:
            with self._lock:
                self.given.pop(meta["uid"], None)
            self._client.delete(_path(pod), params={"gracePeriodSeconds": 0})
        elif phase in (None, "Pending"):
            self._admit(pod)

    def _admit(self, pod: Document) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        with self._lock:
            if uid in self._started:
                return
            taken = {device for ids in self.given.values() for device in ids}
            free = [device for device in self._devices[node] if device not in taken]
            count, left = _wanted(pod), len(free)
            if uid not in self.given and count <= left:
                self.given[uid], self.names[uid] = [self._pick(free) for _ in range(count)], _name(pod)
            chosen = self.given.get(uid)
        if chosen is None:
            self._reject(pod, f"Allocate failed due to no devices free: {count} wanted, {left} left")
        else:
            self._start(pod, chosen)
            self._started.add(uid)  # not before: where the connection is lost meanwhile, it is done again

    def _pick(self, free: list[str]) -> str:
        chosen = self.choose(free) if self.choose is not None else self._random.choice(free)
        free.remove(chosen)
        return chosen

    def _start(self, pod: Document, devices: list[str]) -> None:
        if RESERVED not in pod["metadata"].get("annotations", {}) and _is_reservation(pod):
            if self.is_mute:
                return
            card = devices[0].partition("::")[0]
            told = {"metadata": {"annotations": {RESERVED: card, FOR_KAI: card}}}
            self._client.patch(_path(pod), json=told, headers=MERGE)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        statuses = [
            {"name": each["name"], "state": {"running": {"startedAt": now}}, "ready": True, "restartCount": 0}
            | {"image": "", "imageID": ""}
            for each in pod["spec"]["containers"]
        ]
        status = {"phase": "Running", "containerStatuses": statuses}
        self._client.patch(f"{_path(pod)}/status", json={"status": status}, headers=MERGE)

    def _reject(self, pod: Document, why: str) -> None:
        self.rejected.append(_name(pod))
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": why}
        self._client.patch(f"{_path(pod)}/status", json={"status": status}, headers=MERGE)


@contextmanager
def run_kubelets(plane: ControlPlane, *, seed: int = 1) -> Iterator[StandInKubelets]:
    """Run stand-ins until the block ends; nodes are added to them."""
    with plane.client() as client, plane.client() as watcher:
        watcher.timeout = httpx.Timeout(30.0)
        kubelets = StandInKubelets(client, watcher, seed=seed)
        thread = threading.Thread(target=kubelets.run, daemon=True)
        thread.start()
        try:
            yield kubelets
        finally:
            kubelets.stop()
            thread.join(15.0)


def _wanted(pod: Document) -> int:
    limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(amount.get(name, 0)) for amount in limits for name in RESOURCES)


def _is_reservation(pod: Document) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == "resource-reservation")


def _path(pod: Document) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _name(pod: Document) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
