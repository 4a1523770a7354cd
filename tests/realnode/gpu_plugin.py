"""A stand-in for NVIDIA's device plugin: `nvidia.com/gpu`, each card once, or as often as time-slicing says.

As the real one it tells a container its card by `NVIDIA_VISIBLE_DEVICES`, names replicas `<uuid>::<number>`,
and leaves the choice of the device to kubelet. It is a process of its own: gRPC's threads do not go together
with a test that starts others.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from controlplane.processes import Child, wait_until
from vramline.agent.kubelet_api import deviceplugin_v1beta1_pb2 as messages

__all__ = ["RESOURCE", "GpuPlugin", "gpu_plugin"]

RESOURCE = "nvidia.com/gpu"
_SOCKET = "nvidia-gpu.sock"


class GpuPlugin:
    """A running plugin, as a test sees it."""

    def __init__(self, child: Child, cards: Sequence[str]) -> None:
        self.child = child
        self.cards = list(cards)

    @property
    def allocated(self) -> list[str]:
        """Every device that it handed out, in order."""
        lines = self.child.log.read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith("allocated ")]


class _Service:
    """What kubelet calls."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = devices

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
        devices = [messages.Device(ID=device, health="Healthy") for device in self._devices]
        yield messages.ListAndWatchResponse(devices=devices)
        threading.Event().wait()

    def _allocate(self, request: messages.AllocateRequest, _context: Any) -> bytes:
        answer = b""
        for each in request.container_requests:
            for device in each.devices_ids:
                print(f"allocated {device}", flush=True)  # noqa: T201 — the test reads it
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
    arguments = [sys.executable, "-m", "realnode.gpu_plugin", str(folder), str(replicas), *cards]
    log = folder.parent / "nvidia-plugin.log"
    child = Child("device plugin", arguments, log, {"PYTHONPATH": str(Path(__file__).parent.parent)})
    try:
        wait_until(lambda: "registered" in log.read_text(), "the device plugin", children=(child,))
        yield GpuPlugin(child, cards)
    finally:
        child.stop()


def _serve(folder: Path, replicas: int, cards: Sequence[str]) -> None:
    """Listen, register, and serve until killed."""
    numbered = [f"{card}::{number}" for card in cards for number in range(replicas)]
    service = _Service(cards if replicas == 1 else numbered)
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers((service.handlers(),))
    server.add_insecure_port(f"unix:{folder / _SOCKET}")
    server.start()
    _register(folder / "kubelet.sock")
    print("registered", flush=True)  # noqa: T201 — the test waits for it
    server.wait_for_termination()


def _register(kubelet: Path) -> None:
    with grpc.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=messages.RegisterRequest.SerializeToString,
            response_deserializer=messages.Empty.FromString,
        )
        request = messages.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=RESOURCE)
        call(request, timeout=30.0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
