from vramline.demo.queue import FLUSH_AFTER_S, PodQueue


def queue_of(**priorities: int) -> PodQueue:
    queue = PodQueue()
    for uid, priority in priorities.items():
        queue.add(uid, priority=priority)
    return queue


def drain(queue: PodQueue, now: float) -> list[str]:
    order = []
    while (uid := queue.next_ready(now)) is not None:
        order.append(uid)
        queue.remove(uid)
    return order


def test_priority_comes_first_then_age() -> None:
    assert drain(queue_of(a=0, b=5, c=0, d=5), 0.0) == ["b", "d", "a", "c"]


def test_a_pod_that_failed_waits_to_be_woken() -> None:
    queue = queue_of(a=0)
    queue.failed("a", 0.0)

    assert queue.next_ready(30.0) is None


def test_a_woken_pod_is_tried_once_its_back_off_is_over() -> None:
    queue = queue_of(a=0)
    queue.failed("a", 0.0)
    queue.wake()

    assert queue.next_ready(0.9) is None
    assert queue.next_ready(1.0) == "a"


def test_the_back_off_grows_up_to_a_limit() -> None:
    queue = queue_of(a=0)
    waits = []
    for _ in range(6):
        queue.failed("a", 0.0)
        queue.wake()
        waits.append(next(second for second in range(100) if queue.next_ready(float(second))))

    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_pod_that_nobody_wakes_is_tried_again_after_a_while() -> None:
    queue = queue_of(a=0)
    queue.failed("a", 0.0)

    assert queue.next_ready(FLUSH_AFTER_S - 1) is None
    assert queue.next_ready(FLUSH_AFTER_S) == "a"


def test_a_pod_that_failed_goes_behind_others_of_its_priority() -> None:
    queue = queue_of(a=0, b=0)
    queue.failed("a", 0.0)
    queue.wake()

    assert drain(queue, 10.0) == ["b", "a"]


def test_removing_twice_changes_nothing() -> None:
    queue = queue_of(a=0)
    queue.remove("a")
    queue.remove("a")

    assert len(queue) == 0
    assert "a" not in queue
