"""Kubelet's side of its sockets, over real gRPC: registration, the calls to a plugin, and pod resources."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from vramline.agent.kubelet_api import deviceplugin_v1beta1_pb2 as plugin_api
from vramline.agent.kubelet_api import podresources_v1_pb2 as resources_api

__all__ = ["PluginClient", "StandInKubelet", "serve_pod_resources"]


class PluginClient:
    """What kubelet calls on one plugin's socket."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self.devices: dict[str, str] = {}
        """Health by device, as the plugin said last."""
        self.lists = 0

    async def watch(self) -> None:
        """Follow ListAndWatch until the plugin ends it."""
        call = self._channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=plugin_api.Empty.SerializeToString,
            response_deserializer=plugin_api.ListAndWatchResponse.FromString,
        )
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for answer in call(plugin_api.Empty()):
                self.devices = {device.ID: device.health for device in answer.devices}
                self.lists += 1

    async def options(self) -> plugin_api.DevicePluginOptions:
        """GetDevicePluginOptions."""
        return await self._call("GetDevicePluginOptions", plugin_api.Empty(), plugin_api.DevicePluginOptions)  # type: ignore[no-any-return]

    async def prefer(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        """GetPreferredAllocation for one container."""
        wanted = plugin_api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = plugin_api.PreferredAllocationRequest(container_requests=[wanted])
        answer = await self._call("GetPreferredAllocation", request, plugin_api.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs)

    async def allocate(self, *containers: Iterable[str]) -> plugin_api.AllocateResponse:
        """Allocate, one list of devices a container."""
        asked = [plugin_api.ContainerAllocateRequest(devices_ids=each) for each in containers]
        request = plugin_api.AllocateRequest(container_requests=asked)
        return await self._call("Allocate", request, plugin_api.AllocateResponse)  # type: ignore[no-any-return]

    async def start(self, *devices: str) -> str:
        """PreStartContainer; return what the plugin says against it, or nothing."""
        request = plugin_api.PreStartContainerRequest(devices_ids=devices)
        try:
            await self._call("PreStartContainer", request, plugin_api.PreStartContainerResponse)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return ""

    async def _call(self, method: str, request: Any, answer: Any) -> Any:
        call = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await call(request, timeout=10.0)


class StandInKubelet:
    """A kubelet as far as plugins can tell. `start` wipes the folder first, as a restarted kubelet does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: list[plugin_api.RegisterRequest] = []
        self.refuses = False
        self.refusals = 0
        self.plugin: PluginClient | None = None
        self._server: grpc.aio.Server | None = None
        self._channels: list[grpc.aio.Channel] = []
        self._watches: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen on a new kubelet.sock."""
        for left in self.folder.glob("*.sock"):
            left.unlink()
        method = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=plugin_api.RegisterRequest.FromString,
            response_serializer=plugin_api.Empty.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        """End all connections; the plugin sees no more than that they are closed."""
        await self.hang_up()
        if self._server is not None:
            await self._server.stop(None)

    async def hang_up(self) -> None:
        """Drop the plugin, as kubelet does when something is wrong with it."""
        for watch in self._watches:
            watch.cancel()
        for channel in self._channels:
            await channel.close()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches.clear()
        self._channels.clear()
        self.plugin = None

    async def _register(
        self, request: plugin_api.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> plugin_api.Empty:
        if self.refuses:
            self.refusals += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused by the test")
        self.registered.append(request)
        channel = grpc.aio.insecure_channel(f"unix:{self.folder / request.endpoint}")
        self._channels.append(channel)
        self.plugin = PluginClient(channel)
        self._watches.append(asyncio.create_task(self.plugin.watch()))
        return plugin_api.Empty()


@contextlib.asynccontextmanager
async def serve_pod_resources(
    socket: Path,
    held: dict[str, dict[str, dict[str, list[str]]]],
    allocatable: dict[str, list[str]] | None = None,
) -> AsyncIterator[None]:
    """Serve List: devices by pod (namespace/name), container and resource. `held` may change meanwhile.

    `allocatable` are all devices, by resource.
    """

    async def answer(
        _request: resources_api.ListPodResourcesRequest, _context: object
    ) -> resources_api.ListPodResourcesResponse:
        return resources_api.ListPodResourcesResponse(
            pod_resources=[_pod_of(pod, containers) for pod, containers in held.items()]
        )

    async def answer_all(
        _request: resources_api.AllocatableResourcesRequest, _context: object
    ) -> resources_api.AllocatableResourcesResponse:
        listed = [
            resources_api.ContainerDevices(resource_name=resource, device_ids=devices)
            for resource, devices in (allocatable or {}).items()
        ]
        return resources_api.AllocatableResourcesResponse(devices=listed)

    method = grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=resources_api.ListPodResourcesRequest.FromString,
        response_serializer=resources_api.ListPodResourcesResponse.SerializeToString,
    )
    method_all = grpc.unary_unary_rpc_method_handler(
        answer_all,
        request_deserializer=resources_api.AllocatableResourcesRequest.FromString,
        response_serializer=resources_api.AllocatableResourcesResponse.SerializeToString,
    )
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "List": method,
        "GetAllocatableResources": method_all,
    }
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


def _pod_of(pod: str, containers: dict[str, dict[str, list[str]]]) -> resources_api.PodResources:
    namespace, name = pod.split("/")
    listed = [
        resources_api.ContainerResources(
            name=container,
            devices=[
                resources_api.ContainerDevices(resource_name=resource, device_ids=devices)
                for resource, devices in by_resource.items()
            ],
        )
        for container, by_resource in containers.items()
    ]
    return resources_api.PodResources(namespace=namespace, name=name, containers=listed)
