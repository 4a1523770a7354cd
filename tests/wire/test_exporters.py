"""What exporters and Prometheus say of the cards."""

import json
from typing import Any

import pytest

from vramline.errors import RequestError
from vramline.model.observation import ObservationSource, Unknown
from vramline.wire.exporters import read_ages, read_exporter, read_prometheus

DCGM_PAGE = """\
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="n1"} 45
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="n1"} 70000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA H100",Hostname="n1"} 6144
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",modelName="odd \\"name\\", with comma",Hostname="n1"} 0 1700000000000
DCGM_FI_DEV_FB_USED{gpu="2",UUID="GPU-c",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",Hostname="n1"} 500
"""


def test_a_page_of_dcgm_exporter() -> None:
    first, second = read_exporter(DCGM_PAGE)

    assert (first.node, first.uuid, first.index, first.used) == ("n1", "GPU-a", 0, 6_144)
    assert first.utilization_percent == 45
    assert (second.uuid, second.used, second.utilization_percent) == ("GPU-b", 0, None)


def test_a_page_of_hamis_monitor_is_in_bytes() -> None:
    page = 'hami_host_gpu_memory_used_bytes{node="n1",device_uuid="GPU-a",device_index="3"} 6.442450945e+09'

    (card,) = read_exporter(page)

    assert (card.node, card.uuid, card.index, card.used) == ("n1", "GPU-a", 3, 6_145)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "DCGM_FI_DEV_FB_USED 5",
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} NaN',
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} +Inf',
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} -5',
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} 1e30',
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} many',
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a" 5',
        'DCGM_FI_DEV_FB_USED{Hostname="n1"} 5',
        'DCGM_FI_DEV_FB_USED{UUID="' + "x" * 20_000 + '"} 5',
    ],
)
def test_a_line_that_tells_nothing_is_passed_over(line: str) -> None:
    assert read_exporter(line) == []


def test_what_was_seen_is_unknown_beyond_memory_and_use() -> None:
    seen = read_exporter(DCGM_PAGE)[1].observed(5.0, ObservationSource.DCGM)

    assert (seen.at, seen.used, seen.source) == (5.0, 0, ObservationSource.DCGM)
    assert isinstance(seen.processes, Unknown)
    assert isinstance(seen.utilization_percent, Unknown)


def answer(*results: tuple[dict[str, str], str], **fields: Any) -> bytes:
    listed = [{"metric": metric, "value": [1_700_000_000.0, value]} for metric, value in results]
    whole = {"status": "success", "data": {"resultType": "vector", "result": listed}, **fields}
    return json.dumps(whole).encode()


def test_an_answer_of_prometheus() -> None:
    labels = {"UUID": "GPU-a", "Hostname": "n1", "gpu": "0", "instance": "10.0.0.1:9400"}

    (card,) = read_prometheus(answer(({"__name__": "DCGM_FI_DEV_FB_USED", **labels}, "6144")))

    assert (card.node, card.uuid, card.used) == ("n1", "GPU-a", 6_144)
    assert read_ages(answer((labels, "12.5"))) == {card.key: 12.5}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"<html>", "cannot be read|can be read"),
        (b'{"status": "error", "error": "bad query"}', "bad query"),
        (answer(data=3), "can be read"),
    ],
)
def test_no_answer_is_said_to_be_none(body: bytes, word: str) -> None:
    with pytest.raises(RequestError, match=word):
        read_prometheus(body)
