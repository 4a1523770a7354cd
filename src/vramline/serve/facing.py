"""What faces the network besides the extender: webhook, agents' streams, dashboard, with one identity."""

import asyncio
import socket

from vramline.kube.client import KubeClient
from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.app import SchedulerApp
from vramline.scheduler.live import LiveState
from vramline.scheduler.tls import LiveTls
from vramline.serve.agents import run_agent_listener
from vramline.serve.dashboard import run_dashboard
from vramline.serve.feeds import Feeds
from vramline.serve.identity import keep_identity
from vramline.serve.webhook import run_webhook
from vramline.settings import Settings

__all__ = ["Facing"]

_EXPIRE_EVERY_S = 0.2


class Facing:
    """The faces of one scheduler; each has a listener, or is not there."""

    def __init__(
        self, client: KubeClient, streams: AgentStreams, live: LiveState, feeds: Feeds, app: SchedulerApp
    ) -> None:
        self.webhook: socket.socket | None = None
        self.agents: socket.socket | None = None
        self.people: socket.socket | None = None
        self._client = client
        self._streams = streams
        self._live = live
        self._feeds = feeds
        self._app = app

    async def run(self, settings: Settings, namespace: str, stop: asyncio.Event) -> None:
        """Serve what has a listener until `stop`."""
        client, tls = self._client, LiveTls()
        webhook, agents, people = self.webhook, self.agents, self.people
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                keep_identity(
                    client, tls, namespace=namespace, stop=stop, webhook=webhook, agents=agents, people=people
                )
            )
            if people is not None:
                tasks.create_task(run_dashboard(people, tls, client, self._app, stop))
            if webhook is not None:
                is_ready = self._feeds.synced.is_set
                tasks.create_task(run_webhook(webhook, tls, settings, is_ready=is_ready, stop=stop))
            if agents is not None:
                now = self._live.now
                tasks.create_task(
                    run_agent_listener(agents, tls, client, self._streams, clock=now, stop=stop)
                )
                tasks.create_task(self._expire_sightings(stop))

    async def _expire_sightings(self, stop: asyncio.Event) -> None:
        """Notice streams that fall silent, soon after they did."""
        while not stop.is_set():
            self._live.sightings.expire()
            await asyncio.sleep(_EXPIRE_EVERY_S)
