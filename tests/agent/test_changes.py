"""What makes a report be written before its time."""

from typing import Any

import pytest

from vramline.agent.changes import is_news
from vramline.model.gpu import Health
from vramline.units import Mib
from vramline.wire.report_v1alpha1 import GpuReport, NodeCheck, ReportedGpu, ReportedProcess

PROCESS = ReportedProcess(pid=7, used_mib=900, pod_uid="uid-1")


def report(*, note: str = "", check: NodeCheck | None = None, **fields: Any) -> GpuReport:
    gpu = ReportedGpu(
        **{
            "uuid": "GPU-a",
            "total_mib": 8192,
            "used_mib": 1000,
            "health": Health.HEALTHY,
            "processes": (PROCESS,),
            **fields,
        }
    )
    return GpuReport(
        node="n1", observed_at=0.0, gpus=(gpu,), notes=(note,) if note else (), realtime_check=check
    )


@pytest.mark.parametrize(
    ("now", "news"),
    [
        pytest.param(report(), False, id="nothing"),
        pytest.param(report(used_mib=1063), False, id="less than the threshold"),
        pytest.param(report(used_mib=1064), True, id="more memory in use"),
        pytest.param(report(used_mib=936), True, id="less memory in use"),
        pytest.param(report(used_mib=None), True, id="memory in use unknown"),
        pytest.param(report(health=Health.SUSPECT), True, id="health"),
        pytest.param(report(utilization_percent=99, temperature_c=80), False, id="utilisation, temperature"),
        pytest.param(report(processes=()), True, id="a process ended"),
        pytest.param(report(processes=None), True, id="processes unknown"),
        pytest.param(
            report(processes=(ReportedProcess(pid=7, used_mib=900, pod_uid=None),)), True, id="another owner"
        ),
        pytest.param(
            report(processes=(ReportedProcess(pid=7, used_mib=990, pod_uid="uid-1"),)),
            True,
            id="a process took more of the same sum",
        ),
        pytest.param(report(uuid="GPU-b"), True, id="another card"),
        pytest.param(report(replicas=4), True, id="replicas"),
        pytest.param(report(note="the driver is gone"), True, id="a note"),
        pytest.param(report(check=NodeCheck.DISABLED), True, id="the node's mode"),
        pytest.param(GpuReport(node="n1"), True, id="no cards at all"),
    ],
)
def test_is_news(now: GpuReport, news: bool) -> None:
    assert is_news(report(), now, threshold=Mib(64)) is news


def test_the_first_report_is_news() -> None:
    assert is_news(None, report(), threshold=Mib(64))
