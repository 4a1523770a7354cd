import pytest

import builders
from vramline.demo.cards import CardProcess, SimulatedCard
from vramline.errors import InvariantError
from vramline.model.observation import Unknown
from vramline.units import Mib


def card_with(*processes: CardProcess, **fields: object) -> SimulatedCard:
    return SimulatedCard(builders.gpu("GPU-a", 10_000, reserved=Mib(500), **fields), processes)


def test_a_look_tells_every_process_and_whose_it_is() -> None:
    seen = card_with(CardProcess(1, Mib(2_000), "u"), CardProcess(2, Mib(300), None)).look(5.0)

    assert (seen.at, seen.used) == (5.0, 2_300)
    assert not isinstance(seen.processes, Unknown)
    assert [(each.pid, each.used, each.pod_uid) for each in seen.processes] == [
        (1, 2_000, "u"),
        (2, 300, None),
    ]


def test_a_board_with_unified_memory_lists_no_processes() -> None:
    assert isinstance(card_with(unified=True).look(5.0).processes, Unknown)


def test_a_card_gives_no_more_than_it_has() -> None:
    card = card_with()
    card.start(CardProcess(1, Mib(9_500), "u"))

    with pytest.raises(InvariantError, match="out of memory"):
        card.start(CardProcess(2, Mib(1), "v"))


def test_memory_comes_back_when_a_pod_or_a_process_ends() -> None:
    card = card_with(
        CardProcess(1, Mib(100), "u"), CardProcess(2, Mib(200), "u"), CardProcess(3, Mib(400), None)
    )

    card.stop_pod("u")
    assert card.used == 400
    card.stop(3)
    assert card.room == 9_500
