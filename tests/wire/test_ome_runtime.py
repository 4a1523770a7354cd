"""OME's runtimes, as far as placing needs them."""

from typing import Any

import pytest

from vramline.errors import RequestError
from vramline.wire.ome_runtime import read_serving_runtime


def runtime(**engine: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r"}, "spec": {"engineConfig": engine}}


def runner(command: list[str], **fields: Any) -> dict[str, Any]:
    return {"name": "ome-container", "command": command, **fields}


def test_gpus_and_what_the_pod_needs_of_its_node_are_read() -> None:
    needs = {"limits": {"nvidia.com/gpu": 4, "cpu": 10, "memory": "30Gi"}}
    found = read_serving_runtime(
        runtime(runner=runner(["vllm", "serve"], resources=needs), nodeSelector={"pool": "a"})
    )

    assert (found.pod.gpus, found.pod.host.cpu_milli, found.pod.host.memory_bytes) == (4, 10_000, 30 * 2**30)
    assert found.pod.host.node_selector == {"pool": "a"}
    assert (found.worker, found.workers) == (None, 0)


@pytest.mark.parametrize(
    ("command", "args", "engine", "takes_flags"),
    [
        (["python3", "-m", "sglang.launch_server"], None, "sglang", True),
        (["vllm", "serve"], ["--port", "80"], "vllm", True),
        (None, ["--model", "x"], "", False),
        (["/bin/sh", "-c"], ["vllm serve x"], "vllm", False),
        (["tritonserver"], None, "", False),
    ],
    ids=["sglang", "vllm", "the image's own command", "a shell", "another server"],
)
def test_the_engine_is_known_by_its_command(
    command: list[str], args: list[str] | None, engine: str, *, takes_flags: bool
) -> None:
    found = read_serving_runtime(runtime(runner=runner(command, args=args)))

    assert (found.pod.engine, found.pod.takes_flags) == (engine, takes_flags)


def test_selectors_of_the_engine_hold_for_leader_and_worker() -> None:
    part = {"runner": runner(["vllm"]), "nodeSelector": {"rack": "1"}}
    found = read_serving_runtime(
        runtime(leader=part, worker={**part, "size": 3}, nodeSelector={"pool": "a", "rack": "0"})
    )

    assert found.workers == 3
    assert found.worker is not None
    assert found.pod.host.node_selector == found.worker.host.node_selector == {"pool": "a", "rack": "1"}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (runtime(), "has neither runner nor leader"),
        ({"metadata": {"name": "r"}, "spec": {}}, "has neither runner nor leader"),
        (runtime(runner={"resources": {"limits": {"nvidia.com/gpu": "half"}}}), "nvidia.com/gpu"),
        (runtime(runner={"command": "vllm serve"}), "command"),
        ({"spec": {}}, "metadata"),
    ],
    ids=["nothing", "no engine", "half a GPU", "a command of one word", "no name"],
)
def test_a_runtime_that_serves_nothing_is_refused(document: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        read_serving_runtime(document)
