"""An extender that does nothing, as fast as Python does it: the yardstick that Vramline is held against.

Filter returns every name, prioritize gives every node 0, bind writes the Binding. Same server, event loop,
JSON library and API client as Vramline has, and nothing else.
"""

import argparse
import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from vramline.kube.client import Binding, KubeClient
from vramline.kube.objects import ObjectKey
from vramline.kube.target import find_target
from vramline.wire.extender_v1 import ExtenderBindingArgs, ExtenderBindingResult, HostPriority

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Args(msgspec.Struct, rename="pascal"):
    node_names: list[str]


class _FilterResult(msgspec.Struct, rename="pascal"):
    node_names: list[str]


class IdleExtender:
    """The ASGI application."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._args = msgspec.json.Decoder(_Args)
        self._binding = msgspec.json.Decoder(ExtenderBindingArgs)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        answer = msgspec.json.encode(await self._answer(scope["path"], body))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, path: str, body: bytes) -> object:
        match path:
            case "/filter":
                return _FilterResult(self._args.decode(body).node_names)
            case "/prioritize":
                return [HostPriority(name, 0) for name in self._args.decode(body).node_names]
            case "/bind":
                args = self._binding.decode(body)
                pod = ObjectKey(args.pod_name, args.pod_namespace)
                await self._client.bind(Binding(pod=pod, uid=args.pod_uid, node=args.node))
                return ExtenderBindingResult()
            case _:
                return {}


async def _serve(kubeconfig: Path, port: int) -> None:
    target = find_target({}, kubeconfig=kubeconfig)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        async with KubeClient(target, rng=random.Random(1)) as client:
            config = uvicorn.Config(IdleExtender(client), log_config=None, access_log=False, lifespan="off")
            await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    """Serve until SIGTERM."""
    import uvloop  # noqa: PLC0415 — only where it is run as a program

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options.kubeconfig, options.port))


if __name__ == "__main__":
    main()
