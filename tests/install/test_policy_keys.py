"""Keys in policies are spelled as `wire` spells them, and none is forgotten."""

import re

import pytest

from install.rendered import find_object, rendered
from vramline.wire import keys
from vramline.wire.reservation_pod import NAME_PREFIX

OBJECTS = rendered()
FROZEN = find_object(OBJECTS, "ValidatingAdmissionPolicy", "vramline-frozen-asks")
SCHEDULED = find_object(OBJECTS, "ValidatingAdmissionPolicy", "vramline-scheduled-asks")
SIDE_DOOR = find_object(OBJECTS, "ValidatingAdmissionPolicy", "vramline-no-side-door")
WEBHOOK = find_object(OBJECTS, "MutatingWebhookConfiguration", "vramline")
OWN = re.compile(r"'((?:vramline\.io|nvidia\.com|hami\.io|run\.ai)/[a-z._-]+|gpu-[a-z-]+)'")

AMOUNTS = [
    keys.VRAM,
    keys.GPUS,
    keys.KAI_MEMORY,
    keys.KAI_FRACTION,
    keys.KAI_FRACTION_DEVICES,
    keys.KAI_FRACTION_CONTAINER,
]
CHOICES = [
    keys.REALTIME_CHECK,
    keys.HAMI_USE_TYPE,
    keys.HAMI_NOUSE_TYPE,
    keys.HAMI_USE_UUID,
    keys.HAMI_NOUSE_UUID,
    keys.HAMI_NUMA_BIND,
    keys.HAMI_NODE_POLICY,
    keys.HAMI_GPU_POLICY,
    keys.HAMI_ENABLE_REALTIME,
    keys.HAMI_ALLOCATED,
]
RESOURCES = [
    keys.GPU_COUNT,
    keys.GPU_COUNT_SHARED,
    keys.GPU_MEMORY_MIB,
    keys.GPU_MEMORY_PERCENT,
    keys.GPU_CORES,
    keys.MANAGED,
]


def expressions_of(each: object) -> str:
    """All CEL of an object."""
    if isinstance(each, dict):
        return "\n".join(
            value if key == "expression" else expressions_of(value) for key, value in each.items()
        )
    return "\n".join(map(expressions_of, each)) if isinstance(each, list) else ""


def words_of(each: object) -> set[str]:
    """Every text in quotes in an object's expressions."""
    return set(re.findall(r"'([^']*)'", expressions_of(each)))


def prefixes_of(each: object) -> set[str]:
    return set(re.findall(r"startsWith\('([^']+)'\)", expressions_of(each)))


@pytest.mark.parametrize("key", [*AMOUNTS, *CHOICES])
def test_whatever_an_ask_is_read_from_is_frozen(key: str) -> None:
    assert key in words_of(FROZEN)


@pytest.mark.parametrize("key", AMOUNTS)
@pytest.mark.parametrize("policy", [SCHEDULED, SIDE_DOOR], ids=["scheduled asks", "side door"])
def test_whatever_asks_for_memory_counts_as_a_request(policy: object, key: str) -> None:
    assert key in words_of(policy)


@pytest.mark.parametrize("key", RESOURCES)
@pytest.mark.parametrize("policy", [SCHEDULED, SIDE_DOOR, WEBHOOK], ids=["scheduled", "side door", "webhook"])
def test_whatever_asks_for_devices_counts_as_a_request(policy: object, key: str) -> None:
    assert key.startswith(tuple(prefixes_of(policy)))


@pytest.mark.parametrize("key", [*AMOUNTS, keys.ASK, keys.ALLOCATION, keys.VISIBLE_DEVICES])
def test_whatever_asks_for_memory_calls_the_webhook(key: str) -> None:
    assert key in words_of(WEBHOOK) or key.startswith(tuple(prefixes_of(WEBHOOK)))


def test_no_policy_spells_a_key_that_nobody_knows() -> None:
    known = {getattr(keys, name) for name in keys.__all__}
    policies = [each for each in OBJECTS if each["kind"] == "ValidatingAdmissionPolicy"]

    spelled = {found for each in policies for found in OWN.findall(expressions_of(each))}

    assert spelled <= {*known, f"{keys.GROUP}/", "nvidia.com/gpu", keys.KAI_CONTAINER_PREFIX, NAME_PREFIX}
