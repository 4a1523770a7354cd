"""Calls that may never come back."""

import threading
import time

import pytest

from vramline.probes.lane import Lane, LaneTimeoutError


def test_a_call_returns_what_it_returns() -> None:
    assert Lane("t").run(lambda: 42, 10.0) == 42


def test_what_a_call_raises_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        Lane("t").run(lambda: 1 // 0, 10.0)


def test_a_time_limit_of_the_call_itself_is_not_ours() -> None:
    def call() -> None:
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        Lane("t").run(call, 10.0)


def test_while_a_call_hangs_no_other_is_made_and_afterwards_all_is_well() -> None:
    lane, release, made = Lane("t"), threading.Event(), []
    with pytest.raises(LaneTimeoutError, match="no answer within"):
        lane.run(release.wait, 0.01)

    for _ in range(20):
        with pytest.raises(LaneTimeoutError, match="still hangs"):
            lane.run(lambda: made.append(1), 10.0)
    release.set()
    until = time.monotonic() + 10.0
    while lane.is_hung and time.monotonic() < until:
        time.sleep(0.001)

    assert made == []
    assert lane.run(lambda: 7, 10.0) == 7


def test_a_lane_has_one_thread_and_none_after_it_was_closed() -> None:
    before = set(threading.enumerate())
    lane = Lane("t")
    threads = {lane.run(threading.current_thread, 10.0) for _ in range(5)}
    lane.close()
    for thread in threads:
        thread.join(10.0)

    assert len(threads) == 1
    assert set(threading.enumerate()) <= before
    assert lane.run(lambda: 1, 10.0) == 1


def test_a_call_that_comes_while_the_lane_is_closed_is_made_all_the_same() -> None:
    lane = Lane("t")
    ends = threading.Event()

    def close() -> None:
        while not ends.is_set():
            lane.close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        answers = [lane.run(lambda: 42, 10.0) for _ in range(2_000)]
    finally:
        ends.set()
        closing.join()

    assert set(answers) == {42}
