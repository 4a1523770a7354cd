"""An agent of the test's own: real frames over a real WebSocket, and nothing behind them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from vramline.wire.agent_stream_v1 import LookRequest, Rest, decode_scheduler_frame

__all__ = ["StandInAgent", "agent_at", "card"]


def card(uuid: str, used: int | None, total: int = 8_192, **fields: Any) -> dict[str, Any]:
    """A card as a frame has it: `used` MiB belong to a process of nobody."""
    seen: dict[str, Any] = {"uuid": uuid, "totalMiB": total, **fields}
    if used is not None:
        seen |= {"usedMiB": used, "processes": [{"pid": 7, "usedMiB": used, "podUID": None}] if used else []}
    return seen


@dataclass
class StandInAgent:
    """Sends samples when told to, answers looks from `cards` while `answers`."""

    connection: ClientConnection
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    looked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What looks show, where that is something else than samples do."""
    answers: bool = True
    look_age_ms: int = 0
    looked_at: list[tuple[str, ...]] = field(default_factory=list)
    rests: list[int] = field(default_factory=list)

    async def sample(self, *, age_ms: int = 0) -> None:
        """Send all cards as they are."""
        status = {"gpus": list(self.cards.values())}
        await self.send({"kind": "sample", "ageMs": age_ms, "status": status})

    async def send(self, frame: object) -> None:
        """Send whatever it is."""
        await self.connection.send(msgspec.json.encode(frame).decode())

    async def run(self) -> None:
        """Answer what comes until the connection ends."""
        with contextlib.suppress(ConnectionClosed):
            async for message in self.connection:
                assert isinstance(message, str)
                match decode_scheduler_frame(message):
                    case LookRequest(id=number, gpus=gpus):
                        self.looked_at.append(gpus)
                        if self.answers:
                            shown = self.cards | self.looked
                            status = {"gpus": [shown[uuid] for uuid in gpus if uuid in shown]}
                            frame = {"kind": "look", "id": number, "ageMs": self.look_age_ms}
                            await self.send({**frame, "status": status})
                    case Rest(ms=ms):
                        self.rests.append(ms)


@contextlib.asynccontextmanager
async def agent_at(url: str, *cards: dict[str, Any], **options: Any) -> AsyncIterator[StandInAgent]:
    """Connect an agent that knows these cards."""
    async with connect(url, compression=None, **options) as connection:
        agent = StandInAgent(connection, {each["uuid"]: each for each in cards})
        running = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
