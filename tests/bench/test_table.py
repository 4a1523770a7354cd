"""One table of all figures."""

from pathlib import Path

import numpy as np

from vramline.bench import table
from vramline.bench.table import TableRun, measure_everything


def test_every_benchmark_has_rows_and_what_is_missing_says_so() -> None:
    heard: list[tuple[int, int]] = []

    done = measure_everything(
        TableRun(commit="abc", nodes=10), lambda count, total: heard.append((count, total))
    )

    missing = {each.bench: each.value for each in done.figures if each.what == "not measured"}
    assert {each.bench for each in done.figures} == {
        *("decide", "openb", "extender", "recovery", "vram", "simulate", "estimate", "inference", "agent")
    }
    assert set(missing) == {"openb", "estimate", "agent"}
    assert "VRAMLINE_DATA" in missing["openb"]
    assert heard[-1] == (9, 9)


def test_the_replay_of_the_trace_is_counted_again_from_its_log(tmp_path: Path) -> None:
    folder = tmp_path / "openb"
    folder.mkdir()
    (folder / "openb_node_list_gpu_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn-a,64000,262144,2,V100\nn-b,64000,262144,1,T4\n"
    )
    pods = "".join(f"p{number},1000,1024,1,500,\n" for number in range(8))
    (folder / "openb_pod_list_default.csv").write_text(
        f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{pods}"
    )
    np.savez(folder / "arrival_orders.npz", default_42=np.arange(8), default_42_noderank=np.arange(2))

    figures = table._openb(TableRun(commit="abc", data=tmp_path))

    counted = [each for each in figures if "by its log" in each.what]
    assert [(each.value, each.is_wrong) for each in counted] == [("0", False)] * 2
