"""The live look: in the moment of binding, a node's agent is asked for the cards that were chosen."""

from collections.abc import Collection

from vramline.scheduler.agent_streams import AgentStreams
from vramline.scheduler.checks import Checks
from vramline.scheduler.live import LiveState
from vramline.telemetry.tallies import Duration, Happening

__all__ = ["Eyes"]

LOOK_WITHIN_S = 0.050


class Eyes:
    """Looks at cards through the agents' streams, where there are any, and takes note of how that went."""

    def __init__(
        self,
        live: LiveState,
        streams: AgentStreams | None = None,
        checks: Checks | None = None,
        *,
        within_s: float = LOOK_WITHIN_S,
    ) -> None:
        """`within_s`: how long an answer is waited for."""
        self.checks = checks or Checks()
        self._live = live
        self._streams = streams
        self._within_s = within_s

    def can_look(self, node: str) -> bool:
        """Whether the agent of a node can be asked; if not, nobody waits for it."""
        return self._streams is not None and self._streams.speaks(node)

    async def look(self, node: str, gpus: Collection[str]) -> bool:
        """Look at cards now; False: not all answered in time, so that their freshest samples have to do."""
        if self._streams is None:
            return False
        before = {uuid: self._live.fleet.observation(uuid) for uuid in gpus}
        looked = await self._streams.look(node, sorted(gpus), within_s=self._within_s)
        self.checks.tallies.took(Duration.LOOK, looked.took_s)
        self.checks.tallies.count(Happening.LOOKS, "answered" if not looked.problem else "fallen_back")
        for uuid in gpus:
            if uuid not in looked.missing:
                self.checks.updated(node, uuid, before[uuid], self._live.fleet.observation(uuid))
        if looked.problem:
            self.checks.fell_back(node, looked.missing, looked.problem)
        return not looked.problem
