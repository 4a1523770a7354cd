"""Whether containers are given the GPUs that Vramline names to them, as far as the API server can tell.

A workload learns its card by `NVIDIA_VISIBLE_DEVICES`. NVIDIA's runtime goes by it, unless a pod has another
runtime, or it was told not to believe unprivileged containers. What proves that it does is the agent: its
pod is such a container, and sees cards or does not. Where there is no agent, nothing is known.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramline.kube.client import KubeClient
from vramline.kube.failures import ApiError
from vramline.serve.findings import Finding, Level
from vramline.serve.reading import ClusterReading
from vramline.settings import Settings
from vramline.settings.platforms import list_runtime_classes

__all__ = ["AgentPod", "RuntimeFacts", "judge_runtimes", "read_runtimes"]

Object = Mapping[str, Any]

_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
_AGENTS = "/api/v1/namespaces/vramline-agent/pods"
_UNPRIVILEGED = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
_NAMED = 5


class AgentPod(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent of a node runs."""

    runtime_class: str = ""
    """Empty: the node's default runtime."""
    has_own_libraries: bool = False
    """It is privileged or mounts the driver's folder, so that what it sees proves nothing of the runtime."""


class RuntimeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server shows of runtimes."""

    classes: frozenset[str] = frozenset()
    wanted: dict[str, str] = {}
    """RuntimeClasses that settings name, and where."""
    refuses_unprivileged: bool | None = None
    """What the GPU operator's ClusterPolicy says; None: nothing."""
    agents: dict[str, AgentPod] = {}
    sees_cards: dict[str, bool] = {}
    """By node with GPUs: whether its agent's newest report lists any."""


async def read_runtimes(client: KubeClient, settings: Settings, reading: ClusterReading) -> RuntimeFacts:
    """Ask the API server; what may not be read, or is not there, counts as not known."""
    policies = await _items(client, _POLICIES)
    nodes = [node.name for node in reading.cluster.fleet.nodes if node.gpus]
    return RuntimeFacts(
        classes=frozenset(each["metadata"]["name"] for each in await _items(client, _CLASSES)),
        wanted=list_runtime_classes(settings.platforms),
        refuses_unprivileged=_refusal(policies),
        agents=dict(map(_agent, await _items(client, _AGENTS))),
        sees_cards={name: bool(name in reading.reports and reading.reports[name].gpus) for name in nodes},
    )


def judge_runtimes(facts: RuntimeFacts) -> Iterator[Finding]:
    """Say what is wrong, what is proved, and what nobody can tell from here."""
    for name, where in sorted(facts.wanted.items()):
        if name not in facts.classes:
            message = f"there is no RuntimeClass {name}, which {where} names: such pods cannot be created"
            yield _finding(Level.PROBLEM, message, f"create it, or correct {where}")
    if facts.refuses_unprivileged:
        yield _finding(
            Level.PROBLEM,
            f"the ClusterPolicy sets {_UNPRIVILEGED}=false: pods are not given the GPUs that Vramline names",
            "set it to true, or run the runtime in CDI mode and set deviceNames to its kind of devices",
        )
    proved = sorted(name for name, sees in facts.sees_cards.items() if sees and _proves(facts, name))
    if proved:
        message = f"unprivileged pods are given the GPUs named to them on {_names(proved)}"
        yield _finding(Level.OK, f"{message}{_by_class(facts, proved)}")
    unknown = sorted(set(facts.sees_cards) - set(proved))
    if unknown:
        yield _finding(
            Level.WARNING,
            f"unknown whether unprivileged pods are given the GPUs named to them on {_names(unknown)}",
            "run the agent there with the workloads' runtime: it is such a pod. By hand: `vramline reserve"
            " --once` in a pod with NVIDIA_VISIBLE_DEVICES set to a card's UUID",
        )


def _proves(facts: RuntimeFacts, node: str) -> bool:
    agent = facts.agents.get(node)
    return agent is not None and not agent.has_own_libraries


def _by_class(facts: RuntimeFacts, nodes: list[str]) -> str:
    """Say by which RuntimeClass, which a workload must then name too."""
    classes = sorted({facts.agents[node].runtime_class for node in nodes} - {""})
    return f", with runtimeClassName {' or '.join(classes)}" if classes else ""


def _refusal(policies: list[Object]) -> bool | None:
    """Read the GPU operator's policy; None: there is none, or it leaves the toolkit's default."""
    for policy in policies:
        toolkit = (policy.get("spec") or {}).get("toolkit") or {}
        for variable in toolkit.get("env") or ():
            if variable.get("name") == _UNPRIVILEGED:
                return str(variable.get("value", "")).lower() == "false"
    return None


def _agent(pod: Object) -> tuple[str, AgentPod]:
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or ()
    privileged = any((each.get("securityContext") or {}).get("privileged") for each in containers)
    libraries = any(volume.get("name") == "libraries" for volume in spec.get("volumes") or ())
    agent = AgentPod(
        runtime_class=spec.get("runtimeClassName") or "", has_own_libraries=bool(privileged or libraries)
    )
    return str(spec.get("nodeName") or ""), agent


async def _items(client: KubeClient, path: str) -> list[Object]:
    try:
        found = (await client.look(path)).get("items")
    except ApiError:
        return []
    return list(found) if isinstance(found, list) else []


def _names(nodes: list[str]) -> str:
    more = f" and {len(nodes) - _NAMED} more nodes" if len(nodes) > _NAMED else ""
    return f"{', '.join(nodes[:_NAMED])}{more}"


def _finding(level: Level, message: str, advice: str = "") -> Finding:
    return Finding(level=level, check="runtime", message=message, advice=advice)
