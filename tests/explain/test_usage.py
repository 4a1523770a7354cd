"""To whom the memory of a card counts."""

import pytest

from builders import claim, gpu, observation, process
from vramline.explain.usage import split_card
from vramline.model.claim import Claim
from vramline.model.law import take_account
from vramline.model.observation import Observation
from vramline.units import Mib

ONE, TWO = claim(8_000, "a/one"), claim(4_000, "b/two")


@pytest.mark.parametrize(
    ("claims", "seen", "expected"),
    [
        pytest.param([], None, {" unknown": 32_600}, id="nobody looked at an empty card"),
        pytest.param([], observation(0), {" idle": 32_600}, id="an idle card"),
        pytest.param(
            [ONE, TWO],
            observation(7_000, process(6_000, "a/one"), process(1_000)),
            {"a used": 6_000, "a wasted": 2_000, "b wasted": 4_000, " unmanaged": 1_000, " idle": 19_600},
            id="used, wasted, unmanaged, idle",
        ),
        pytest.param(
            [ONE],
            observation(9_000, process(9_000, "a/one")),
            {"a used": 9_000, " idle": 23_600},
            id="more used than claimed",
        ),
        pytest.param(
            [ONE],
            observation(30_000, process(30_000)),
            {"a wasted": 2_600, " unmanaged": 30_000},
            id="what others took is not wasted",
        ),
        pytest.param(
            [ONE],
            observation(8_000, listed=False),
            {"a unseen": 8_000, " unmanaged": 8_000, " idle": 16_600},
            id="a card that lists no processes",
        ),
        pytest.param(
            [ONE], None, {"a unseen": 8_000, " unknown": 24_600}, id="a claim that nobody looked at"
        ),
    ],
)
def test_every_mib_has_its_place(
    claims: list[Claim], seen: Observation | None, expected: dict[str, int]
) -> None:
    card = gpu()
    shares = split_card(card, claims, take_account(card, claims, seen, Mib(100)), seen)
    parts = {f"{share.namespace} {share.part}": share.mib for share in shares if share.mib}

    assert {
        name: mib for name, mib in parts.items() if name.split()[-1] not in {"total", "claimed"}
    } == expected
