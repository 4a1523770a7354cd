"""What kubelet calls on the plugin's socket, device plugin interface v1beta1.

None of the calls names a pod, so no answer is made for one. Allocate is asked while kubelet admits a pod: an
error there would fail the pod for good, and a slow answer would hold up other pods. So it agrees, at once.
PreStartContainer is asked before each start of a container, and again until it agrees.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from vramline.agent.kubelet_api import deviceplugin_v1beta1_pb2 as messages
from vramline.agent.plugin_check import StartCheck
from vramline.agent.plugin_slots import Slots, prefer_slots
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["OPTIONS", "PluginService", "Watching"]

OPTIONS = messages.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

_HEALTH = {True: "Healthy", False: "Unhealthy"}
_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Watching:
    """The watch of the slots over one socket: begun by kubelet, ended, about to be ended by us."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    closing: asyncio.Event = field(default_factory=asyncio.Event)


class PluginService:
    """One plugin, through any number of sockets and kubelets."""

    def __init__(self, slots_per_card: int, check: StartCheck) -> None:
        self._per_card = slots_per_card
        self._check = check
        self._slots = Slots()
        self._not_started: set[str] = set()
        """Slots that were handed out since this process began, and whose container never started."""
        self._changed = asyncio.Event()

    def show(self, report: GpuReport) -> None:
        """Take the newest sample: kubelet hears of it if it changes a slot."""
        slots = self._slots.after(report, per_card=self._per_card)
        if slots != self._slots:
            self._slots = slots
            self._wake()

    def close(self, watching: Watching) -> None:
        """End the watch over one socket, in good order."""
        watching.closing.set()
        self._wake()

    def handlers(self, watching: Watching) -> grpc.GenericRpcHandler:
        """Return the calls of one socket as a gRPC server wants them; `watching` is kept up to date."""

        async def list_and_watch(
            _request: messages.Empty, _context: _Context
        ) -> AsyncIterator[messages.ListAndWatchResponse]:
            watching.begun.set()
            try:
                while not watching.closing.is_set():
                    changed = self._changed
                    yield self._devices()
                    await changed.wait()
            finally:
                watching.ended.set()

        methods = {
            "GetDevicePluginOptions": _method(self._options, messages.Empty),
            "GetPreferredAllocation": _method(self._prefer, messages.PreferredAllocationRequest),
            "Allocate": _method(self._allocate, messages.AllocateRequest),
            "PreStartContainer": _method(self._pre_start, messages.PreStartContainerRequest),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                list_and_watch,
                request_deserializer=messages.Empty.FromString,
                response_serializer=messages.ListAndWatchResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _devices(self) -> messages.ListAndWatchResponse:
        devices = [messages.Device(ID=slot, health=_HEALTH[well]) for slot, well in self._slots.listed()]
        return messages.ListAndWatchResponse(devices=devices)

    async def _options(self, _request: messages.Empty, _context: _Context) -> messages.DevicePluginOptions:
        return OPTIONS

    async def _prefer(
        self, request: messages.PreferredAllocationRequest, _context: _Context
    ) -> messages.PreferredAllocationResponse:
        chosen = [
            prefer_slots(each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size)
            for each in request.container_requests
        ]
        return messages.PreferredAllocationResponse(
            container_responses=[
                messages.ContainerPreferredAllocationResponse(deviceIDs=slots) for slots in chosen
            ]
        )

    async def _allocate(
        self, request: messages.AllocateRequest, _context: _Context
    ) -> messages.AllocateResponse:
        for each in request.container_requests:
            self._not_started.update(each.devices_ids)
        return messages.AllocateResponse(
            container_responses=[messages.ContainerAllocateResponse() for _ in request.container_requests]
        )

    async def _pre_start(
        self, request: messages.PreStartContainerRequest, context: _Context
    ) -> messages.PreStartContainerResponse:
        slots = list(request.devices_ids)
        has_run = self._not_started.isdisjoint(slots)
        refusal = await self._check.refusal(slots, has_run=has_run)
        if refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
        self._not_started.difference_update(slots)
        return messages.PreStartContainerResponse()


def _method(serve: Any, request: Any) -> "grpc.RpcMethodHandler[Any, Any]":  # noqa: ANN401 — any call
    return grpc.unary_unary_rpc_method_handler(
        serve,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )
