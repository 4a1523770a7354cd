"""Every code is explained, in the code and in docs/probes.md alike."""

import re

import pytest

from house.tree import ROOT, SOURCE
from vramline.probes.device import Vendor
from vramline.probes.faults import _NVML_CODES, FAULTS, UNSUPPORTED_CODES, advise, failed, probe_error

PAGE = (ROOT / "docs" / "probes.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([A-Z_]+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_every_code_with_its_cause_and_advice() -> None:
    assert [(code, fault.cause, fault.advice) for code, fault in FAULTS.items()] == ROWS


def test_every_code_that_is_used_is_explained() -> None:
    used = {
        code
        for path in (SOURCE / "probes").glob("*.py")
        for code in re.findall(
            r'(?:Failed|failed|probe_error)\((?:\s*(?:f?"[^"]*"|\w+),)?\s*"([A-Z_]{4,})"',
            path.read_text(encoding="utf-8"),
        )
    }

    assert used >= {"TIMEOUT", "NONSENSE", "NOT_FOUND", "LIBRARY_NOT_FOUND", "NOT_IMPLEMENTED"}
    assert used <= set(FAULTS)
    assert set(_NVML_CODES.values()) <= set(FAULTS) | UNSUPPORTED_CODES


@pytest.mark.parametrize("vendor", Vendor)
def test_every_maker_is_on_the_page(vendor: str) -> None:
    assert f"`{vendor}`" in PAGE.partition("## Makers")[2]


def test_a_code_of_somebody_elses_probe_still_has_advice() -> None:
    assert advise("ECLIPSE") == advise("UNKNOWN")
    assert probe_error("metax: no", "ECLIPSE").code == "ECLIPSE"
    assert failed("ECLIPSE", "failed to get memory").detail == "failed to get memory: NVML_ERROR_ECLIPSE"
