"""`vramline reserve` as a process: NVIDIA's own bindings on a stand-in library, and a scripted API server."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from controlplane.processes import wait_until
from fakenvml import Card, FakeNvml
from kube.scripted import Visitor, serving

POD = "/api/v1/namespaces/vramline-reservations/pods/gpu-reservation-1"
IN_POD = {"POD_NAMESPACE": "vramline-reservations", "POD_NAME": "gpu-reservation-1"}
STORED = {
    "metadata": {"name": "gpu-reservation-1", "namespace": "vramline-reservations", "resourceVersion": "7"},
    "spec": {"containers": []},
}


def command(nvml: FakeNvml, *options: str) -> list[str]:
    return [sys.executable, "-m", "vramline", "reserve", "--library", str(nvml.library), *options]


def run(
    nvml: FakeNvml, *options: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, **nvml.environment(), **(env or {})}
    return subprocess.run(
        command(nvml, *options), capture_output=True, text=True, check=False, env=given, timeout=60
    )


def kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    return path


# ── looking once ─────────────────────────────────────────────────────────────────────────────────────
def test_one_look_names_the_card_and_needs_no_cluster(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(Card("GPU-1"))

    answer = run(fake_nvml, "--once", "-o", "json", env={"KUBECONFIG": "/nowhere"})

    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {"uuid": "GPU-1", "library": f"{fake_nvml.library} (explicit)"}


def test_the_runtime_decides_which_card_is_seen(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(Card("GPU-1"), Card("GPU-12"), Card("GPU-2"), runtime=1)

    answer = run(fake_nvml, "--once", env={"NVIDIA_VISIBLE_DEVICES": "GPU-12"})

    assert answer.stdout.split()[0] == "GPU-12"


@pytest.mark.parametrize(
    ("visible", "problem"),
    [
        ("all", "unable to get device count: 2 GPU devices are visible"),
        ("void", "unable to get device count: 0 GPU devices are visible"),
    ],
)
def test_not_exactly_one_card_is_one_line(fake_nvml: FakeNvml, visible: str, problem: str) -> None:
    fake_nvml.set(Card("GPU-1"), Card("GPU-2"), runtime=1)

    answer = run(fake_nvml, "--once", env={"NVIDIA_VISIBLE_DEVICES": visible})

    assert answer.returncode == 1
    *_, last = answer.stderr.splitlines()
    assert last.startswith(f"error: {problem}")


def test_a_call_without_a_pod_says_what_is_accepted(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(Card("GPU-1"))

    answer = run(fake_nvml, "--kubeconfig", str(kubeconfig(tmp_path, 1)), env={"POD_NAME": "x"})

    assert answer.returncode == 2
    assert answer.stderr == (
        "error: --pod = '/x': is no pod; accepted: NAMESPACE/NAME,"
        " or the variables POD_NAMESPACE and POD_NAME\n"
    )


# ── the whole of it ──────────────────────────────────────────────────────────────────────────────────
class PatchedPod:
    """An API server that has one pod; `codes` are its answers, the last one for ever."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.requests: list[bytes] = []

    async def serve(self, visitor: Visitor) -> None:
        while True:
            self.requests.append(await visitor.request())
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            await visitor.answer(code, json.dumps(STORED if code == 200 else {"kind": "Status"}).encode())


@pytest.mark.parametrize("codes", [(200,), (503, 500, 200)], ids=["at once", "after two failures"])
def test_it_writes_the_card_onto_its_pod_and_then_waits(
    fake_nvml: FakeNvml, tmp_path: Path, codes: tuple[int, ...]
) -> None:
    fake_nvml.set(Card("GPU-1"))
    server, log = PatchedPod(*codes), tmp_path / "log"

    code = asyncio.run(hold_until_told(server, fake_nvml, log))

    assert code == 0
    assert len(server.requests) == len(codes)
    head, _, body = server.requests[-1].partition(b"\r\n\r\n")
    assert head.startswith(f"PATCH {POD}?".encode())
    told = {"vramline.io/reserved-gpu": "GPU-1", "run.ai/reserve_for_gpu_index": "GPU-1"}
    assert json.loads(body) == {"metadata": {"annotations": told}}
    assert [line.partition(" ")[2].partition(" library=")[0] for line in log.read_text().splitlines()] == [
        '"Looking for GPU device id for pod" namespace="vramline-reservations" pod="gpu-reservation-1"',
        '"Found 1 GPU devices"',
        '"Found GPU device" deviceId="GPU-1"',
        '"Pod was updated with GPU device UUID" deviceId="GPU-1"',
    ]


async def hold_until_told(server: PatchedPod, nvml: FakeNvml, log: Path) -> int:
    """Run the program until it waits, tell it to end, and return its exit status."""
    async with serving(server.serve) as listening:
        file = kubeconfig(log.parent, listening.port)
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command(nvml, "--kubeconfig", str(file)),
                env={**os.environ, **nvml.environment(), **IN_POD},
                stdin=asyncio.subprocess.DEVNULL,
                stderr=output,
            )
        await asyncio.to_thread(wait_until, lambda: is_a_shell(process.pid), "the waiting shell", seconds=60)
        process.send_signal(signal.SIGTERM)
        return await process.wait()


def is_a_shell(pid: int) -> bool:
    """Whether it has become the shell, and the shell has come to its trap."""
    process = Path(f"/proc/{pid}")
    caught = int(re.findall(r"SigCgt:\s+(\w+)", (process / "status").read_text())[0], 16)
    is_shell = (process / "cmdline").read_bytes().startswith(b"/bin/sh\0")
    return is_shell and bool(caught >> (signal.SIGTERM - 1) & 1)


def test_who_may_not_write_says_so_and_ends(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.set(Card("GPU-1"))
    server = PatchedPod(403)

    async def refused() -> subprocess.CompletedProcess[str]:
        async with serving(server.serve) as listening:
            file = kubeconfig(tmp_path, listening.port)
            return await asyncio.to_thread(run, fake_nvml, "--kubeconfig", str(file), env=IN_POD)

    answer = asyncio.run(refused())

    assert (answer.returncode, len(server.requests)) == (1, 1)
    assert answer.stderr.splitlines()[-1].startswith(f"error: PATCH {POD}")
