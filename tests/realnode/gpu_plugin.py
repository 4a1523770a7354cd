"""A stand-in for NVIDIA's device plugin: `nvidia.com/gpu`, each card once, or as often as time-slicing says.

As the real one it tells a container its card by `NVIDIA_VISIBLE_DEVICES`, names replicas `<uuid>::<number>`,
and leaves the choice of the device to kubelet.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from vramline.agent.kubelet_api import deviceplugin_v1beta1_pb2 as messages

__all__ = ["RESOURCE", "GpuPlugin", "gpu_plugin"]

RESOURCE = "nvidia.com/gpu"
_SOCKET = "nvidia-gpu.sock"


class GpuPlugin:
    """What kubelet calls; `allocated` is every device that it ever handed out."""

    def __init__(self, cards: Sequence[str], replicas: int) -> None:
        self.cards = list(cards)
        self.devices = (
            self.cards
            if replicas == 1
            else [f"{card}::{number}" for card in cards for number in range(replicas)]
        )
        self.allocated: list[str] = []
        self._closing = threading.Event()

    def close(self) -> None:
        """End the watch."""
        self._closing.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the calls as a gRPC server wants them."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                lambda *_: b"", request_deserializer=messages.Empty.FromString
            ),
            "Allocate": grpc.unary_unary_rpc_method_handler(
                self._allocate, request_deserializer=messages.AllocateRequest.FromString
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list,
                request_deserializer=messages.Empty.FromString,
                response_serializer=messages.ListAndWatchResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)

    def _list(self, _request: Any, _context: Any) -> Iterator[messages.ListAndWatchResponse]:
        devices = [messages.Device(ID=device, health="Healthy") for device in self.devices]
        yield messages.ListAndWatchResponse(devices=devices)
        self._closing.wait()

    def _allocate(self, request: messages.AllocateRequest, _context: Any) -> bytes:
        answer = b""
        for each in request.container_requests:
            self.allocated += each.devices_ids
            cards = sorted({device.partition("::")[0] for device in each.devices_ids})
            variable = _field(1, b"NVIDIA_VISIBLE_DEVICES") + _field(2, ",".join(cards).encode())
            answer += _field(1, _field(1, variable))  # a container's answer, its `envs`, one entry of them
        return answer


def _field(number: int, content: bytes) -> bytes:
    """Write a field of a message as protobuf does; the product's own messages have no variables."""
    length, rest = bytearray(), len(content)
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + content


@contextmanager
def gpu_plugin(folder: Path, cards: Sequence[str], *, replicas: int = 1) -> Iterator[GpuPlugin]:
    """Offer cards to the kubelet whose folder of device plugins this is, for the length of a `with` block."""
    plugin = GpuPlugin(cards, replicas)
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((plugin.handlers(),))
    server.add_insecure_port(f"unix:{folder / _SOCKET}")
    server.start()
    try:
        _register(folder / "kubelet.sock")
        yield plugin
    finally:
        plugin.close()
        server.stop(1.0).wait()


def _register(kubelet: Path) -> None:
    with grpc.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=messages.RegisterRequest.SerializeToString,
            response_deserializer=messages.Empty.FromString,
        )
        request = messages.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=RESOURCE)
        call(request, timeout=30.0)
