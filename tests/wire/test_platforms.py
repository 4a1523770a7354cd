"""What kind of machine a node is."""

import pytest

from vramline.wire.platforms import recognise_platform
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu

ARM, INTEL = {"kubernetes.io/arch": "arm64"}, {"kubernetes.io/arch": "amd64"}


def report(platform: str, *models: str) -> GpuReport:
    gpus = tuple(ReportedGpu(uuid=model, model=model, total_mib=1000) for model in models)
    return GpuReport(node="n1", platform=platform, gpus=gpus)


@pytest.mark.parametrize(
    ("labels", "reported", "expected"),
    [
        pytest.param({}, None, "", id="nobody says anything"),
        pytest.param(INTEL, None, "x86", id="by architecture"),
        pytest.param(ARM, None, "arm64", id="arm by architecture"),
        pytest.param(INTEL, report("x86", "NVIDIA L40S"), "x86", id="by report"),
        pytest.param({}, report("tegra"), "tegra", id="a board, by its own word"),
        pytest.param(INTEL, report("tegra"), "tegra", id="the agent looked at the machine"),
        pytest.param(ARM, report("arm64", "NVIDIA Thor"), "tegra", id="a board whose agent saw no mark"),
        pytest.param(ARM, report("arm64", "Orin (nvgpu)"), "tegra", id="orin"),
        pytest.param(ARM, report("arm64", "NVIDIA GB10"), "arm64", id="spark has the usual driver"),
        pytest.param(ARM, report("arm64", "NVIDIA GH200 480GB"), "arm64", id="grace has the usual driver"),
        pytest.param({**ARM, "nvidia.com/gpu.product": "Orin-(nvgpu)"}, None, "tegra", id="by label"),
        pytest.param({**ARM, "nvidia.com/gpu.machine": "NVIDIA-Jetson-AGX"}, None, "tegra", id="by machine"),
        pytest.param({**INTEL, "nvidia.com/gpu.product": "Thor"}, None, "x86", id="no board is x86"),
        pytest.param({**ARM, "nvidia.com/gpu.machine": "Thorium-9"}, None, "arm64", id="part of a word"),
        pytest.param({**INTEL, "vramline.io/platform": "edge"}, report("x86"), "edge", id="by operator"),
    ],
)
def test_the_best_source_decides(labels: dict[str, str], reported: GpuReport | None, expected: str) -> None:
    assert recognise_platform(labels, reported) == expected
