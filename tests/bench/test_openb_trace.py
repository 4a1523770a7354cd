"""Files of a trace that are not as they should be: one line that says which, and what is wrong."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vramline.bench.openb_trace import Trace, read_trace
from vramline.errors import RequestError

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-a,64000,262144,2,V100\nn-b,64000,262144,1,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{number},1000,1024,1,500,\n" for number in range(4)
)


def orders(**lists: Any) -> bytes:
    given = {"mix_1": np.arange(4), "mix_1_noderank": np.array([1, 0]), **lists}
    written = io.BytesIO()
    np.savez(written, **given)
    return written.getvalue()


def write(folder: Path, *, nodes: str = NODES, pods: str = PODS, given: bytes | None = None) -> None:
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "pods.csv").write_text(pods, encoding="utf-8")
    (folder / "orders.npz").write_bytes(orders() if given is None else given)


def read(folder: Path, *, variant: str = "mix", seed: int = 1) -> Trace:
    files = (folder / name for name in ("nodes.csv", "pods.csv", "orders.npz"))
    return read_trace(*files, variant=variant, seed=seed)


def test_nodes_and_pods_are_read_with_ranks_and_order(tmp_path: Path) -> None:
    write(tmp_path)

    trace = read(tmp_path)

    assert [(node.name, node.gpus, node.rank) for node in trace.nodes] == [("n-a", 2, 1), ("n-b", 1, 0)]
    assert (len(trace.pods), trace.order) == (4, (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"nodes": ""}, "nodes.csv: lacks the columns sn", id="nothing in it"),
        pytest.param({"nodes": NODES.replace("n-b", "n-a")}, "nodes.csv: lists n-a twice", id="a node twice"),
        pytest.param({"nodes": NODES.replace(",2,", ",0,").replace(",1,", ",0,")}, "no GPU", id="no GPU"),
        pytest.param({"nodes": NODES.replace(",2,", ",9999,")}, "gpu = '9999'", id="thousands of GPUs"),
        pytest.param({"nodes": NODES.replace("V100\n", "V100\nn-c\n")}, "ranks 2 nodes", id="another node"),
        pytest.param({"nodes": NODES.replace("n-b,64000", "n-b,-1")}, "cpu_milli = '-1'", id="below 0"),
        pytest.param({"pods": PODS.replace(",500,", ",0,")}, "gpu_milli = '0'", id="nothing of a card"),
        pytest.param({"pods": PODS.replace(",500,", ",1001,")}, "gpu_milli = '1001'", id="more than a card"),
        pytest.param({"pods": PODS + "x\n"}, "pods.csv: num_gpu = ''", id="a short line"),
        pytest.param({"pods": PODS.partition("p3")[0]}, "names pod 3, but", id="a pod is missing"),
    ],
)
def test_lists_that_are_wrong(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write(tmp_path, **files)  # type: ignore[arg-type]

    with pytest.raises(RequestError) as raised:
        read(tmp_path)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(b"", "is not whole lists of numbers", id="nothing in it"),
        pytest.param(b"hello", "is not whole lists of numbers", id="text"),
        pytest.param(orders()[:200], "is not whole lists of numbers", id="cut off"),
        pytest.param(orders().replace(b"NUMPY", b"NUMPI"), "is not whole lists of numbers", id="damaged"),
        pytest.param(orders(mix_1=np.array([{}])), "is not whole lists of numbers", id="objects"),
        pytest.param(orders(mix_1=np.arange(0)), "mix_1: is empty", id="empty"),
        pytest.param(orders(mix_1=np.arange(4) - 1), "mix_1 = -1: is below 0", id="below 0"),
        pytest.param(orders(mix_1=np.arange(4) / 2), "mix_1: is no list of whole", id="halves"),
        pytest.param(orders(mix_1=np.arange(4).reshape(2, 2)), "mix_1: is no list of whole", id="a table"),
        pytest.param(orders(mix_1_noderank=np.zeros(2, int)), "two nodes the same rank", id="equal ranks"),
    ],
)
def test_orders_that_are_wrong(tmp_path: Path, given: bytes, message: str) -> None:
    write(tmp_path, given=given)

    with pytest.raises(RequestError) as raised:
        read(tmp_path)

    assert str(raised.value).startswith(str(tmp_path / "orders.npz"))
    assert message in str(raised.value)


@pytest.mark.parametrize("which", [{"variant": "other"}, {"seed": 2}], ids=["variant", "seed"])
def test_an_order_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, which: dict[str, Any]
) -> None:
    write(tmp_path)

    with pytest.raises(RequestError, match=r"is not there; accepted: mix_1$"):
        read(tmp_path, **which)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"orders\.npz: cannot be read \(No such file or directory\)"):
        read(tmp_path)
