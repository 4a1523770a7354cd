"""The server of these tests leaves nothing behind, whenever it is told to stop."""

import asyncio
import socket

import pytest

from kube.scripted import Visitor, serving
from open_sockets import sockets_at


@pytest.mark.parametrize("turns", range(6))
def test_who_came_just_before_the_end_leaves_no_socket(turns: int) -> None:
    async def visit() -> tuple[int, socket.socket]:
        async with serving(Visitor.leave) as server:
            visitor = socket.create_connection(("127.0.0.1", server.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        return server.port, visitor

    port, visitor = asyncio.run(visit())

    with visitor:
        assert sockets_at(port) == 0
