"""The real scheduler in a process of its own, beside a stand-in for the API server, and what it uses."""

import contextlib
import http.client
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import msgspec

from vramline.bench.population import PopulationShape
from vramline.bench.ports import free_port
from vramline.bench.stand_in import serve_stand_in
from vramline.errors import TransientError

__all__ = [
    "Caller",
    "ServerProcess",
    "ending_in_order",
    "look",
    "stand_in_server",
    "start_scheduler",
    "start_server",
    "wait_for",
]

T = TypeVar("T")

_HOST = "127.0.0.1"
_START_S = 120.0
_ASK_EVERY_S = 0.02
"""A question may be as long as the list of nodes: to ask more often would slow what is measured."""
_SETTINGS = {
    "VRAMLINE_LOG_LEVEL": "error",
    "VRAMLINE_OBSERVATION_MAX_AGE": "1h",  # nobody writes new reports here
    "VRAMLINE_NOMINATE_AHEAD": "off",  # what is measured are the calls
}


class ServerProcess:
    """A process that serves HTTP on loopback."""

    def __init__(self, pid: int, port: int, has_ended: Callable[[], bool]) -> None:
        self.pid = pid
        self.port = port
        self.has_ended = has_ended

    def cpu_s(self) -> float:
        """Return the CPU time it has used, all threads, to the nanosecond: Linux lets us read its clock."""
        try:
            return time.clock_gettime(~self.pid << 3 | 2)
        except OSError:
            raise TransientError("a process that was to be measured has ended") from None

    def ended_children_cpu_s(self) -> float:
        """Return the CPU time of processes that it started and that have ended, to the hundredth."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            raise TransientError("a process that was to be measured has ended") from None
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        """Return the memory it holds."""
        return self._status("VmRSS")

    def peak_rss_mib(self) -> float:
        """Return the most memory it has held."""
        return self._status("VmHWM")

    def _status(self, name: str) -> float:
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            raise TransientError("a process that was to be measured has ended") from None
        told = dict(line.split(":", 1) for line in lines)
        return round(int(told[name].split()[0]) / 1024, 1)


class Caller:
    """One connection that is kept, as kube-scheduler keeps it."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection(_HOST, server.port, timeout=60.0)

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def get(self, path: str) -> Any:  # noqa: ANN401 — whatever the JSON says
        """Return what is at an address."""
        return msgspec.json.decode(self.read(path))

    def read(self, path: str) -> bytes:
        """Return what is at an address, as it is."""
        self._connection.request("GET", path)
        return self._connection.getresponse().read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@contextlib.contextmanager
def start_server(serve: Callable[..., None], *arguments: object) -> Iterator[ServerProcess]:
    """Run `serve(*arguments, listener)` in a process of its own until the block ends."""
    context = multiprocessing.get_context("spawn")
    with ending_in_order():
        with socket.create_server((_HOST, 0)) as listener:
            port = listener.getsockname()[1]
            child = context.Process(target=serve, args=(*arguments, listener), daemon=True)
            child.start()
        try:
            yield ServerProcess(child.pid or 0, port, lambda: not child.is_alive())
        finally:
            child.kill()
            child.join()


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Have SIGTERM end this process as Ctrl-C does: what it started must not outlive it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def stand_in_server(shape: PopulationShape) -> Iterator[ServerProcess]:
    """Serve a population, ready to be listed."""
    with start_server(serve_stand_in, shape) as server:
        wait_for(lambda: look(server, "/sent"), server, "the stand-in")
        yield server


@contextlib.contextmanager
def start_scheduler(
    stand_in: ServerProcess, settings: dict[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run `vramline scheduler` against a stand-in until the block ends; it is just starting."""
    with tempfile.TemporaryDirectory(prefix="vramline-bench-") as folder:
        port, config = free_port(), Path(folder) / "kubeconfig"
        config.write_bytes(msgspec.json.encode(_kubeconfig(stand_in.port)))
        command = [sys.executable, "-m", "vramline", "scheduler", "--kubeconfig", str(config)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VRAMLINE_")}
        child = subprocess.Popen(  # noqa: S603 — ourselves
            [*command, "--listen", f"{_HOST}:{port}"], env=kept | _SETTINGS | (settings or {})
        )
        try:
            yield ServerProcess(child.pid, port, lambda: child.poll() is not None)
        finally:
            child.kill()
            child.wait()


def look(server: ServerProcess, path: str) -> Any:  # noqa: ANN401 — whatever the JSON says
    """Return what is at an address, over a connection of its own."""
    with Caller(server) as caller:
        return caller.get(path)


def wait_for(ask: Callable[[], T | None], server: ServerProcess, what: str) -> T:
    """Ask until there is an answer other than None; raises `TransientError` where there will be none."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and not server.has_ended():
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = ask()
            if answer is not None:
                return answer
        time.sleep(_ASK_EVERY_S)
    raise TransientError(f"{what} did not get ready within {_START_S:g} s; its own message is above")


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "clusters": [{"name": "bench", "cluster": {"server": f"http://{_HOST}:{port}"}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
