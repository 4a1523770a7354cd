"""What the agent costs: CPU time and memory of the real process, measured from outside while it streams.

The cards are those of the library that is given, so that it can be a stand-in. Every sample is streamed over
TLS to a listener in this process; reports are written where a cluster is given.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from vramline.bench.processes import ending_in_order
from vramline.errors import RequestError, TransientError
from vramline.kube.certificates import renew_identity
from vramline.wire.agent_stream_v1 import Sample, decode_agent_frame

__all__ = ["AgentFigures", "AgentRun", "measure_agent"]

_WARM_UP_S = 5.0
_START_S = 30.0
_HOST = "127.0.0.1"
_NO_CLUSTER = {
    "clusters": [{"name": "none", "cluster": {"server": f"https://{_HOST}:9"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none"}}],
    "current-context": "none",
}
"""A cluster that never answers: the agent tries again now and then, as it must."""


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    library: Path
    seconds: float = 30.0
    interval: str = "1s"
    kubeconfig: Path | None = None
    """The cluster to report to; None: none."""
    node: str = "bench"


class AgentFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    gpus: int
    seconds: float
    samples: int
    """That arrived over the stream in this time."""
    cpu_percent: float
    """Of one core."""
    rss_mib: float
    peak_rss_mib: float
    threads: int
    longest_gap_s: float
    """Between two samples on arrival."""
    with_reports: bool


@dataclass(slots=True)
class _Listener:
    """A scheduler that only counts."""

    gpus: int = 0
    arrivals: list[float] = field(default_factory=list)

    async def talk(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                frame = decode_agent_frame(str(message))
                if isinstance(frame, Sample):
                    self.gpus = len(frame.status.gpus or ())
                    self.arrivals.append(time.monotonic())


class _Usage(msgspec.Struct, frozen=True):
    """What the kernel says of a process."""

    cpu_s: float
    rss_mib: float
    peak_rss_mib: float
    threads: int


def measure_agent(run: AgentRun) -> AgentFigures:
    """Run the agent for a while and return what it used; raises `TransientError` where it does not stream."""
    if not run.library.exists():
        raise RequestError(
            subject="--library", value=str(run.library), problem="does not exist", accepted="an NVML library"
        )
    with ending_in_order(), tempfile.TemporaryDirectory(prefix="vramline-bench-") as folder:
        return asyncio.run(_measure(run, Path(folder)))


async def _measure(run: AgentRun, folder: Path) -> AgentFigures:
    listener = _Listener()
    identity = renew_identity(None, names=(_HOST,), now=dt.datetime.now(dt.UTC))
    (folder / "ca.crt").write_bytes(identity.trusted)
    (folder / "tls.pem").touch(mode=0o600)
    (folder / "tls.pem").write_bytes(identity.certificate + identity.key)
    (folder / "token").write_text("bench")
    (folder / "kubeconfig").write_bytes(msgspec.json.encode(_NO_CLUSTER))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    async with serve(listener.talk, _HOST, 0, ssl=context, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with _agent(run, folder, port) as pid:
            await _wait_for_samples(listener, pid)
            await asyncio.sleep(_WARM_UP_S)
            before, began = _usage(pid), time.monotonic()
            await asyncio.sleep(run.seconds)
            after, took = _usage(pid), time.monotonic() - began
    inside = [at for at in listener.arrivals if at >= began]
    gaps = [b - a for a, b in itertools.pairwise(inside)]
    return AgentFigures(
        gpus=listener.gpus,
        seconds=round(took, 1),
        samples=len(inside),
        cpu_percent=round(100 * (after.cpu_s - before.cpu_s) / took, 2),
        rss_mib=round(after.rss_mib, 1),
        peak_rss_mib=round(after.peak_rss_mib, 1),
        threads=after.threads,
        longest_gap_s=round(max(gaps, default=0.0), 2),
        with_reports=run.kubeconfig is not None,
    )


@contextlib.asynccontextmanager
async def _agent(run: AgentRun, folder: Path, port: int) -> AsyncIterator[int]:
    arguments = [
        *(sys.executable, "-m", "vramline", "agent", "--node", run.node, "--interval", run.interval),
        *("--library", str(run.library), "--scheduler", f"{_HOST}:{port}"),
        *("--token-file", str(folder / "token"), "--ca-file", str(folder / "ca.crt")),
        *("--kubeconfig", str(run.kubeconfig or folder / "kubeconfig"), "--metrics-listen", f"{_HOST}:0"),
    ]
    environment = {**os.environ, "VRAMLINE_LOG_LEVEL": "error"}
    child = await asyncio.create_subprocess_exec(*arguments, env=environment)
    try:
        yield child.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()


async def _wait_for_samples(listener: _Listener, pid: int) -> None:
    try:
        async with asyncio.timeout(_START_S):
            while not listener.arrivals:
                _usage(pid)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise TransientError(f"the agent streamed nothing within {_START_S:g} s") from None


def _usage(pid: int) -> _Usage:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        ticks = int(stat[11]) + int(stat[12])
        return _Usage(
            cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
            rss_mib=int(status["VmRSS"].split()[0]) / 1024,
            peak_rss_mib=int(status["VmHWM"].split()[0]) / 1024,
            threads=int(status["Threads"]),
        )
    except (OSError, KeyError):  # gone, or a zombie without memory
        raise TransientError("the agent ended; its own message is above") from None
