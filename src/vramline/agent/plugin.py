"""The kubelet device plugin: offers slots, and is there again whenever kubelet is.

    wait for a sample and a kubelet ──▶ own socket, Register ──▶ watched ──▶ is anything gone? ──┐
                  ▲                                                                             │
                  └────── kubelet's socket is another one, ours was wiped, or nobody watches ◀──┘

A kubelet that starts wipes its folder, our socket with it, and knows no plugin. Its socket has the same name
as before, so the file behind the name is watched, not the name.
"""

import asyncio
import contextlib
import itertools
import socket
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import msgspec
import structlog

from vramline.agent.kubelet_api import deviceplugin_v1beta1_pb2 as messages
from vramline.agent.plugin_check import CheckOptions, NodeSources, StartCheck
from vramline.agent.plugin_service import OPTIONS, PluginService, Watching
from vramline.wire import keys

__all__ = ["PluginOptions", "run_plugin"]

_PREFIX = "vramline-gpu-"
_POLL_S = 0.5
_REGISTER_S = 5.0
_WATCHED_S = 10.0
"""How long kubelet may take to call back after a registration."""
_GRACE_S = 1.0
"""For calls under way when a socket is closed."""
_APART_S = 2.0
"""From one failed registration to the next."""


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator decides about the plugin."""

    slots_per_card: int
    check: CheckOptions
    folder: Path
    """Where kubelet and its plugins have their sockets."""


async def run_plugin(sources: NodeSources, options: PluginOptions, stop: asyncio.Event) -> None:
    """Offer slots to this node's kubelet until `stop`; whatever befalls it, try again."""
    service = PluginService(options.slots_per_card, StartCheck(sources, options.check))
    _remove_sockets(options.folder)
    names = itertools.count()
    session: _Session | None = None
    try:
        while not stop.is_set():
            report = sources.newest()
            if report is not None and report.gpus is not None:
                service.show(report)
                if session is None or not session.lasts():
                    await _end(service, session)
                    session = await _begin(service, options.folder, next(names))
            await _pause(stop, _POLL_S)
    finally:
        await _end(service, session)


@dataclass(slots=True)
class _Session:
    """One socket of ours, registered with one kubelet."""

    server: grpc.aio.Server
    kubelet: Path
    kubelet_file: tuple[int, ...]
    own: Path
    own_file: tuple[int, ...] | None
    watching: Watching
    watched_by: float
    """When kubelet must have begun to watch, by the event loop's clock."""

    def lasts(self) -> bool:
        """Whether the same kubelet still watches the same socket, or has time left to begin."""
        in_time = self.watching.begun.is_set() or asyncio.get_running_loop().time() < self.watched_by
        return (
            in_time
            and not self.watching.ended.is_set()
            and _file_at(self.kubelet) == self.kubelet_file
            and _file_at(self.own) == self.own_file
        )


async def _begin(service: PluginService, folder: Path, number: int) -> _Session | None:
    """Listen on a new socket and register it; None: not now.

    Every socket has a name of its own: gRPC removes the file of a server that ended when it sees fit.
    """
    kubelet = folder / "kubelet.sock"
    kubelet_file = _file_at(kubelet)
    if kubelet_file is None or not _is_listening(kubelet):
        return None
    own, watching = folder / f"{_PREFIX}{number}.sock", Watching()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service.handlers(watching),))
    try:
        server.add_insecure_port(f"unix:{own}")
    except RuntimeError as error:  # what gRPC raises for a socket that cannot be made
        structlog.get_logger().warning("plugin.unable", socket=str(own), detail=str(error))
        await asyncio.sleep(_APART_S)
        return None
    await server.start()
    watched_by = asyncio.get_running_loop().time() + _WATCHED_S
    session = _Session(server, kubelet, kubelet_file, own, _file_at(own), watching, watched_by)
    try:
        await _register(kubelet, own.name)
    except grpc.aio.AioRpcError as error:
        detail = f"{error.code().name}: {error.details()}"
        structlog.get_logger().warning("plugin.refused", kubelet=str(kubelet), detail=detail)
        await _end(service, session)
        await asyncio.sleep(_APART_S)
        return None
    structlog.get_logger().info("plugin.registered", resource=keys.SLOT, socket=own.name)
    return session


async def _register(kubelet: Path, endpoint: str) -> None:
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=messages.RegisterRequest.SerializeToString,
            response_deserializer=messages.Empty.FromString,
        )
        request = messages.RegisterRequest(
            version="v1beta1", endpoint=endpoint, resource_name=keys.SLOT, options=OPTIONS
        )
        await call(request, timeout=_REGISTER_S)


async def _end(service: PluginService, session: _Session | None) -> None:
    if session is None:
        return
    service.close(session.watching)
    await session.server.stop(_GRACE_S)
    session.own.unlink(missing_ok=True)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


def _file_at(path: Path) -> tuple[int, ...] | None:
    """Tell the file behind a name from any other that had the name; numbers of inodes are used again."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _is_listening(path: Path) -> bool:
    """Whether anybody answers there: the socket of a killed kubelet stays until the next one starts."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _remove_sockets(folder: Path) -> None:
    """Remove what an earlier process left."""
    for left in folder.glob(f"{_PREFIX}*.sock"):
        with contextlib.suppress(OSError):  # a folder that cannot be written to is named when ours is made
            left.unlink()
