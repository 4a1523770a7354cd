"""Every key that is read or written stands in docs/wire.md, and every spelling in docs/asks.md."""

import re

import pytest

from house.tree import ROOT, SOURCE
from vramline.wire import keys

WIRE = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
ASKS = (ROOT / "docs" / "asks.md").read_text(encoding="utf-8")
KEYS = {name: getattr(keys, name) for name in keys.__all__}

SPELLINGS = [
    keys.VRAM,
    keys.GPUS,
    keys.KAI_MEMORY,
    keys.KAI_FRACTION,
    keys.KAI_FRACTION_DEVICES,
    keys.KAI_FRACTION_CONTAINER,
    f"{keys.KAI_CONTAINER_PREFIX}<name>{keys.KAI_REQUEST_SUFFIX}",
    f"{keys.KAI_CONTAINER_PREFIX}<name>{keys.KAI_LIMIT_SUFFIX}",
    keys.GPU_MEMORY_MIB,
    keys.GPU_MEMORY_PERCENT,
    keys.GPU_CORES,
    keys.GPU_PRIORITY,
    keys.GPU_COUNT,
    keys.GPU_COUNT_SHARED,
    keys.HAMI_USE_TYPE,
    keys.HAMI_NOUSE_TYPE,
    keys.HAMI_USE_UUID,
    keys.HAMI_NOUSE_UUID,
    keys.HAMI_NUMA_BIND,
    keys.HAMI_NODE_POLICY,
    keys.HAMI_GPU_POLICY,
    keys.REALTIME_CHECK,
    keys.HAMI_ENABLE_REALTIME,
]


def test_all_names_every_key() -> None:
    constants = {name for name in vars(keys) if name.isupper()}

    assert constants == set(keys.__all__)


def test_no_key_is_spelled_twice() -> None:
    assert len(set(KEYS.values())) == len(KEYS)


@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_key_is_in_the_table(name: str) -> None:
    assert f"| `{KEYS[name]}` |" in WIRE


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_documented(spelling: str) -> None:
    assert f"`{spelling}`" in ASKS


def test_keys_are_spelled_in_one_module_only() -> None:
    domains = re.compile(r'"(?:vramline\.io|nvidia\.com|hami\.io|run\.ai)/[^" ]+"')
    elsewhere = {
        f"{path.relative_to(SOURCE).as_posix()}: {found}"
        for path in SOURCE.rglob("*.py")
        if path.name != "keys.py"
        for found in domains.findall(path.read_text(encoding="utf-8"))
    }

    assert elsewhere == set()
