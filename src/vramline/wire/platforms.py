"""What kind of machine a node is, in one word: `tegra`, `x86`, `arm64`, or what an operator calls it.

Best first: the operator's label `vramline.io/platform`; the agent's report, which looks at the machine; the
architecture with the name of the GPU, by report or by GPU-feature-discovery. A board is told by its GPU:
Orin, Thor and Xavier are in no other machine. Empty: nobody says anything.
"""

import re
from collections.abc import Iterable, Mapping

from vramline.wire import keys
from vramline.wire.platform_profile import TEGRA
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["recognise_platform"]

_ARM = "arm64"
_BY_ARCHITECTURE = {"amd64": "x86", "arm64": _ARM}
_BOARDS = re.compile(r"(?<![a-z])(?:jetson|tegra|orin|thor|xavier)(?![a-z])")


def recognise_platform(labels: Mapping[str, str], report: GpuReport | None) -> str:
    """Return the platform of a node with these labels, as far as it can be told.

    >>> recognise_platform({keys.ARCHITECTURE: "arm64", keys.GFD_PRODUCT: "Orin-(nvgpu)"}, None)
    'tegra'
    >>> recognise_platform({keys.ARCHITECTURE: "amd64", keys.GFD_PRODUCT: "NVIDIA-L40S"}, None)
    'x86'
    """
    told = labels.get(keys.PLATFORM, "")
    if told:
        return told
    reported = (report.platform if report is not None else "") or ""
    found = reported or _BY_ARCHITECTURE.get(labels.get(keys.ARCHITECTURE, ""), "")
    return TEGRA if found == _ARM and _is_board(_products(labels, report)) else found


def _products(labels: Mapping[str, str], report: GpuReport | None) -> Iterable[str]:
    yield labels.get(keys.GFD_PRODUCT, "")
    yield labels.get(keys.GFD_MACHINE, "")
    yield from (gpu.model or "" for gpu in (report.gpus or () if report is not None else ()))


def _is_board(products: Iterable[str]) -> bool:
    return any(_BOARDS.search(product.lower()) for product in products)
