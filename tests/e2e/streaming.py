"""Agents' streams against a real API server: accounts, bound tokens, and an agent of the test's own."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import httpx
from websockets.exceptions import WebSocketException

from controlplane.processes import wait_until
from scheduler.agent_clients import StandInAgent, agent_at, card

__all__ = ["NAME", "RunningAgent", "agent_token", "make_room_for_agents", "running_agent", "trust"]

NAME = "vramline-agents.vramline-system.svc"
"""What the listener of agents is called by those who check its certificate."""
ACCOUNT = "vramline-agent"
CORE = "/api/v1/namespaces"
_SAMPLE_EVERY_S = 0.2


def make_room_for_agents(admin: httpx.Client) -> None:
    """Make what the chart would: the agent's namespace and account, an empty Secret and ConfigMap."""
    for path, name in (
        (CORE, ACCOUNT),
        (f"{CORE}/{ACCOUNT}/serviceaccounts", ACCOUNT),
        (f"{CORE}/{ACCOUNT}/configmaps", "vramline-ca"),
        (f"{CORE}/vramline-system/secrets", "vramline-webhook-tls"),
    ):
        admin.post(path, json={"metadata": {"name": name}}).raise_for_status()


def agent_token(
    admin: httpx.Client,
    node: str | None,
    *,
    namespace: str = ACCOUNT,
    account: str = ACCOUNT,
    audience: str = "vramline",
    seconds: int = 600,
) -> str:
    """Return a token as kubelet would mount it into an agent's pod on a node; None: bound to no pod."""
    spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": seconds}
    if node is not None:
        name = f"agent-{node}"
        pods = f"{CORE}/{namespace}/pods"
        pod = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "serviceAccountName": account,
                "containers": [{"name": "main", "image": "example"}],
            },
        }
        if not admin.get(f"{pods}/{name}").is_success:
            admin.post(pods, json=pod).raise_for_status()
        uid = admin.get(f"{pods}/{name}").json()["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    asked = admin.post(f"{CORE}/{namespace}/serviceaccounts/{account}/token", json={"spec": spec})
    return str(asked.raise_for_status().json()["status"]["token"])


def trust(admin: httpx.Client) -> ssl.SSLContext:
    """Wait until the scheduler has told whom to trust, and trust that alone."""

    def bundle() -> str:
        stored = admin.get(f"{CORE}/{ACCOUNT}/configmaps/vramline-ca").json()
        return str((stored.get("data") or {}).get("ca.crt", ""))

    wait_until(lambda: bool(bundle()), "the bundle for the agents")
    return ssl.create_default_context(cadata=bundle())


class RunningAgent:
    """An agent in a thread: samples several times a second."""

    def __init__(self, admin: httpx.Client, port: int, node: str, *cards: dict[str, Any]) -> None:
        self.cards = {each["uuid"]: each for each in cards}
        self.looked: dict[str, dict[str, Any]] = {}
        """What looks show, where that is something else than samples do."""
        self.is_silent = False
        self.answers = True
        self.problem = ""
        self.agent: StandInAgent | None = None
        self._ends = threading.Event()
        headers = {"Authorization": f"Bearer {agent_token(admin, node)}"}
        self._options: dict[str, Any] = {"additional_headers": headers, "ssl": trust(admin)}
        self._options["server_hostname"] = NAME
        self._url = f"wss://127.0.0.1:{port}/agents/v1/stream"
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Connect and go on until stopped."""
        self._thread.start()
        wait_until(lambda: self.agent is not None or bool(self.problem), "the stream of an agent")
        assert not self.problem, self.problem

    def stop(self) -> None:
        """End the stream."""
        self._ends.set()
        self._thread.join()

    def use(self, uuid: str, mib: int) -> None:
        """Let a process of nobody use this much of a card from now on."""
        self.cards[uuid] = card(uuid, mib, self.cards[uuid]["totalMiB"])

    async def _run(self) -> None:
        try:
            async with agent_at(self._url, **self._options) as agent:
                agent.looked, self.agent = self.looked, agent
                while not self._ends.is_set():
                    await self._tick(agent)
                    await asyncio.sleep(_SAMPLE_EVERY_S)
        except (OSError, WebSocketException) as error:
            self.problem = str(error)

    async def _tick(self, agent: StandInAgent) -> None:
        agent.answers = self.answers
        agent.cards = dict(self.cards)
        if not self.is_silent:
            await agent.sample()


@contextlib.contextmanager
def running_agent(
    admin: httpx.Client, port: int, node: str, *cards: dict[str, Any]
) -> Iterator[RunningAgent]:
    """Run an agent of the test's own for the length of a `with` block."""
    agent = RunningAgent(admin, port, node, *cards)
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()
