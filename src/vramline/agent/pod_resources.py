"""Which devices there are, and which pod holds which: kubelet's own word, over its pod resources socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from vramline.agent.kubelet_api import podresources_v1_pb2 as messages
from vramline.errors import TransientError

__all__ = ["POD_RESOURCES_SOCKET", "HeldDevice", "list_devices", "list_held_devices"]

POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
"""Where every kubelet has it."""

_LIST = "/v1.PodResourcesLister/List"
_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"

_Answer = TypeVar("_Answer", bound=Message)


class HeldDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device in the hands of one container."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: str

    @property
    def pod_key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.pod}"


async def list_held_devices(socket: Path, *, timeout_s: float = 5.0) -> tuple[HeldDevice, ...]:
    """Ask kubelet once; raises `TransientError` where it does not answer.

    A device is listed from the moment in which kubelet admitted its pod until the pod has ended.
    """
    request = messages.ListPodResourcesRequest()
    return tuple(_read(await _ask(socket, _LIST, request, messages.ListPodResourcesResponse, timeout_s)))


async def list_devices(socket: Path, *, timeout_s: float = 5.0) -> tuple[tuple[str, str], ...]:
    """Ask for every device that kubelet could hand out, as resource and id; raises `TransientError`.

    A device that its plugin calls unhealthy is not among them.
    """
    request = messages.AllocatableResourcesRequest()
    answer = await _ask(socket, _ALLOCATABLE, request, messages.AllocatableResourcesResponse, timeout_s)
    return tuple((each.resource_name, device) for each in answer.devices for device in each.device_ids)


async def _ask(
    socket: Path, method: str, request: Message, answer: type[_Answer], timeout_s: float
) -> _Answer:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            found: _Answer = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise TransientError(
                f"kubelet's pod resources at {socket}: {error.code().name}, {error.details()}"
            ) from error
    return found


def _read(answer: messages.ListPodResourcesResponse) -> Iterator[HeldDevice]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                for device in devices.device_ids:
                    yield HeldDevice(
                        namespace=pod.namespace,
                        pod=pod.name,
                        container=container.name,
                        resource=devices.resource_name,
                        device=device,
                    )
