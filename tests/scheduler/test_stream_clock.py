"""Dating frames: a frame that was long on its way is as old as it is."""

import pytest

from vramline.scheduler.stream_clock import StreamClock


def test_a_sample_is_as_old_as_its_age_says() -> None:
    assert StreamClock().date(received_at=100.0, age_s=0.5, told=None) == 99.5


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0], ids=["behind", "right", "ahead"])
def test_the_agents_clock_does_not_matter(ahead_s: float) -> None:
    clock = StreamClock()

    dated = [clock.date(received_at=100.0 + n, age_s=0.5, told=99.5 + n + ahead_s) for n in range(3)]

    assert dated == pytest.approx([99.5, 100.5, 101.5])


def test_a_frame_that_was_long_on_its_way_is_as_old_as_it_is() -> None:
    clock = StreamClock()
    clock.date(received_at=100.0, age_s=0.0, told=100.0)

    assert clock.date(received_at=110.0, age_s=0.0, told=101.0) == pytest.approx(101.0)


def test_the_first_frame_may_be_the_slow_one() -> None:
    clock = StreamClock()
    clock.date(received_at=104.0, age_s=0.0, told=100.0)

    assert clock.date(received_at=105.0, age_s=0.0, told=105.0) == pytest.approx(105.0)
    assert clock.date(received_at=108.0, age_s=0.0, told=106.0) == pytest.approx(106.0)


def test_a_clock_that_is_set_is_followed() -> None:
    clock = StreamClock()
    clock.date(received_at=100.0, age_s=0.0, told=100.0)

    assert clock.date(received_at=101.0, age_s=0.2, told=41.0) == pytest.approx(100.8)
    assert clock.date(received_at=102.0, age_s=0.2, told=42.0) == pytest.approx(101.8)


def test_clocks_may_drift_apart_slowly() -> None:
    clock = StreamClock()

    for n in range(2_000):
        dated = clock.date(received_at=1_000.0 + n, age_s=0.0, told=1_000.0 + n * 0.9999)

    assert dated == pytest.approx(2_999.0, abs=0.02)
