"""A stand-in for the API server's `pods/exec`: one answer a pod, and how many asked at once."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from vramline.kube.target import Cluster, Target, User

__all__ = ["ExecServer"]

SHOWN = "let-me-in"
PROTOCOL = Subprotocol("v5.channel.k8s.io")


class ExecServer:
    """Answers `pod: text` with the text, `pod: number` with that exit status, None never."""

    def __init__(self, **answers: str | int | None) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.commands: list[list[str]] = []
        self.at_once = self.most_at_once = 0
        self.denied_namespaces: set[str] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Target]:
        """Serve; yields how to reach it."""
        async with serve(
            self._talk, "127.0.0.1", 0, process_request=self._admit, subprotocols=[PROTOCOL]
        ) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            yield Target(cluster=Cluster(server=f"http://127.0.0.1:{port}"), user=User(token=SHOWN))

    def _admit(self, socket: ServerConnection, request: Request) -> Response | None:
        namespace = request.path.split("/")[4]
        self.asked.append(request.path.split("/")[6])
        if request.headers.get("Authorization") != f"Bearer {SHOWN}":
            return socket.respond(HTTPStatus.UNAUTHORIZED, "who are you")
        if namespace in self.denied_namespaces:
            return socket.respond(HTTPStatus.FORBIDDEN, "pods/exec is forbidden")
        return None

    async def _talk(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._answer(socket, socket.request.path)
        finally:
            self.at_once -= 1

    async def _answer(self, socket: ServerConnection, path: str) -> None:
        self.commands.append(parse_qs(urlsplit(path).query)["command"])
        answer = self.answers.get(path.split("/")[6].replace("-", "_"))
        if answer is None:
            await asyncio.Future()
        elif isinstance(answer, str):
            await socket.send(b"\1" + answer[:10].encode())
            await socket.send(b"\1" + answer[10:].encode())
            await socket.send(b"\3" + json.dumps({"status": "Success"}).encode())
        else:
            causes = [{"reason": "ExitCode", "message": str(answer)}]
            end = {"status": "Failure", "message": "command terminated", "details": {"causes": causes}}
            await socket.send(b"\2nvidia-smi: not found")
            await socket.send(b"\3" + json.dumps(end).encode())
