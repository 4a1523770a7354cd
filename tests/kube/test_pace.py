import random

from hypothesis import given
from hypothesis import strategies as st

from vramline.kube.pace import Pace, delay_s


@given(st.integers(1, 10_000), st.integers())
def test_a_wait_is_between_half_and_all_of_the_doubled_one(failures: int, seed: int) -> None:
    pace = Pace(first_s=0.5, most_s=30.0)

    whole = min(30.0, 0.5 * 2.0 ** min(failures - 1, 20))

    assert whole / 2 <= delay_s(pace, failures, random.Random(seed)) <= whole


def test_two_clients_do_not_come_back_together() -> None:
    waits = {delay_s(Pace(), 5, random.Random(seed)) for seed in range(20)}

    assert len(waits) == 20
