"""The one card of a reservation pod: found, or refused in the words of the question that failed."""

import pytest

from fakenvml import Card, FakeNvml
from vramline.probes.device import ProbeError
from vramline.probes.only_card import OnlyCard, read_only_card
from vramline.probes.options import ProbeOptions


@pytest.fixture
def nvml(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    for name, value in fake_nvml.environment().items():
        monkeypatch.setenv(name, value)
    return fake_nvml


def read(nvml: FakeNvml, counts: list[int] | None = None, timeout_s: float = 10.0) -> OnlyCard:
    options = ProbeOptions(library=nvml.library, timeout_s=timeout_s)
    return read_only_card(options, counted=(counts if counts is not None else []).append)


def test_the_one_card_is_named_by_its_uuid(nvml: FakeNvml) -> None:
    nvml.set(Card("GPU-1"))
    counts: list[int] = []

    card = read(nvml, counts)

    assert (card.uuid, counts) == ("GPU-1", [1])
    assert card.library == f"{nvml.library} (explicit)"


def test_memory_that_the_board_does_not_tell_is_not_needed(nvml: FakeNvml) -> None:
    nvml.set(Card("GPU-thor", name="NVIDIA Thor", used=None, errors={"processes": 3}))

    assert read(nvml).uuid == "GPU-thor"


@pytest.mark.parametrize("cards", [0, 2, 8])
def test_no_card_and_several_are_no_reservation(nvml: FakeNvml, cards: int) -> None:
    nvml.set(*(Card(f"GPU-{number}") for number in range(cards)))
    counts: list[int] = []

    with pytest.raises(
        ProbeError, match=f"unable to get device count: {cards} GPU devices are visible"
    ) as told:
        read(nvml, counts)

    assert (told.value.code, counts) == ("WRONG_COUNT", [cards])


FAULTS = {
    "no driver": (
        {"init": 9},
        {},
        "unable to initialize NVML: NVML_ERROR_DRIVER_NOT_LOADED (Driver Not Loaded)",
    ),
    "no permission": ({"init": 4}, {}, "unable to initialize NVML: NVML_ERROR_NO_PERMISSION"),
    "driver gone": ({"count": 9}, {}, "unable to get device count: NVML_ERROR_DRIVER_NOT_LOADED"),
    "no handle": ({}, {"handle": 4}, "unable to get device handle: NVML_ERROR_NO_PERMISSION"),
    "no uuid": ({}, {"uuid": 3}, "unable to get device uuid: NVML_ERROR_NOT_SUPPORTED"),
}


@pytest.mark.parametrize("which", FAULTS)
def test_an_error_names_the_question_that_failed(nvml: FakeNvml, which: str) -> None:
    orders, errors, message = FAULTS[which]
    nvml.set(Card("GPU-1", errors=errors), **orders)

    with pytest.raises(ProbeError) as told:
        read(nvml)

    assert str(told.value).startswith(message)


def test_a_driver_that_hangs_is_not_waited_for_without_end(nvml: FakeNvml) -> None:
    nvml.set(Card("GPU-1", hangs=["uuid"]))

    with pytest.raises(ProbeError, match="unable to get device uuid: no answer within"):
        read(nvml, timeout_s=0.2)

    nvml.set()  # whatever hangs is let go
