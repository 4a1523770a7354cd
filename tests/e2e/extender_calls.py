"""kube-scheduler's part, played by the test: filter and bind over HTTP, a few pods at a time."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

__all__ = ["bind", "filter_nodes", "schedule", "waiting_pods"]

Document = dict[str, Any]
_AT_ONCE = 4


def waiting_pods(admin: httpx.Client, namespace: str) -> list[Document]:
    """Return the pods that are on no node yet."""
    found: list[Document] = admin.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    return [pod for pod in found if not pod["spec"].get("nodeName")]


def filter_nodes(vramline: httpx.Client, pod: Document, nodes: Iterable[str]) -> list[str]:
    """Return the nodes that are left."""
    answer = vramline.post("/filter", json={"Pod": pod, "NodeNames": list(nodes)})
    return list(answer.json().get("NodeNames") or []) if answer.is_success else []


def bind(vramline: httpx.Client, pod: Document, node: str) -> str:
    """Ask for a binding and return what speaks against it; empty: it is bound."""
    meta = pod["metadata"]
    wanted = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
    answer = vramline.post("/bind", json=wanted)
    return str(answer.json().get("Error", "")) if answer.is_success else f"{answer.status_code}"


def schedule(vramline: httpx.Client, pods: Iterable[Document], nodes: Iterable[str]) -> list[str]:
    """Try every pod once, a few at a time; return what was refused. A scheduler that dies refuses."""
    known = list(nodes)

    def one(pod: Document) -> str:
        try:
            fitting = filter_nodes(vramline, pod, known)
            return bind(vramline, pod, fitting[0]) if fitting else "no node"
        except httpx.TransportError as error:
            return f"no answer: {error}"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [refusal for refusal in pool.map(one, pods) if refusal]
