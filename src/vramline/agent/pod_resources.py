"""Which pod holds which devices: kubelet's own word, over its pod resources socket."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import msgspec

from vramline.agent.kubelet_api import podresources_v1_pb2 as messages
from vramline.errors import TransientError

__all__ = ["POD_RESOURCES_SOCKET", "HeldDevice", "list_held_devices"]

POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
"""Where every kubelet has it."""

_LIST = "/v1.PodResourcesLister/List"


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
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            _LIST,
            request_serializer=messages.ListPodResourcesRequest.SerializeToString,
            response_deserializer=messages.ListPodResourcesResponse.FromString,
        )
        try:
            answer = await call(messages.ListPodResourcesRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise TransientError(
                f"kubelet's pod resources at {socket}: {error.code().name}, {error.details()}"
            ) from error
    return tuple(_read(answer))


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
