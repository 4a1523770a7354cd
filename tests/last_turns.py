"""The end of an event loop that a server ran in: what is dropped open is reported in some later test."""

import asyncio

__all__ = ["leave_nothing_open"]

_HANDSHAKE_S = 2.0
"""How long a connection that was just accepted may take to say so."""
_TURNS = 3
"""A transport that was closed closes its socket in the next turn of the loop, over TLS in the one after."""


async def leave_nothing_open() -> None:
    """Wait for what is under way in this loop, end what does not end by itself, and let sockets close."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=_HANDSHAKE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
