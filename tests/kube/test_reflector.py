"""How long a reflector waits: longer only while nothing works."""

import asyncio
import random
from collections.abc import Callable

import structlog

from kube.scripted import Script, Visitor, serving, until
from vramline.kube.client import KubeClient
from vramline.kube.objects import NODES
from vramline.kube.pace import Pace
from vramline.kube.reflector import Reflector, ReflectorTiming
from vramline.kube.target import Cluster, Target, User

NOTHING = b'{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}'
GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
TIMING = ReflectorTiming(pace=Pace(first_s=0.001, most_s=0.002))


def failures_told(script: Script, clock: Callable[[], float], count: int) -> list[int]:
    """Follow nodes until so many watches broke; return how many failures in a row were counted each time."""

    async def follow() -> list[int]:
        with structlog.testing.capture_logs() as logs:
            async with serving(script) as server:
                target = Target(cluster=Cluster(server=f"http://127.0.0.1:{server.port}"), user=User())
                async with KubeClient(target, rng=random.Random(7)) as client:
                    reflector = Reflector(client, NODES, rng=random.Random(7), timing=TIMING, clock=clock)
                    task = asyncio.create_task(reflector.run(lambda _: None))
                    await until(lambda: len([log for log in logs if "failures" in log]) >= count)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        return [log["failures"] for log in logs if "failures" in log][:count]

    return asyncio.run(follow())


class WatchScript:
    """Refuses to stream snapshots, lists nothing, and ends every watch in the same way."""

    def __init__(self, end: bytes, lasts_s: float) -> None:
        self.now = 0.0
        self._end = end
        self._lasts_s = lasts_s

    def clock(self) -> float:
        return self.now

    async def __call__(self, visitor: Visitor) -> None:
        while True:
            asked = (await visitor.request()).split(b"\r\n")[0]
            if b"sendInitialEvents" in asked:
                await visitor.answer(400, b"{}")
            elif b"watch=true" in asked:
                await visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await visitor.say(
                    f"{len(self._end):x}\r\n".encode() + self._end + b"\r\n" if self._end else b""
                )
                self.now += self._lasts_s
                return
            else:
                await visitor.answer(200, NOTHING)


def test_a_watch_that_stood_for_a_while_in_silence_was_no_failure() -> None:
    script = WatchScript(end=b"", lasts_s=50.0)  # as a load balancer cuts what is idle

    assert failures_told(script, script.clock, 5) == [1] * 5


def test_a_watch_that_breaks_at_once_is_waited_for_longer_each_time() -> None:
    script = WatchScript(end=b"", lasts_s=0.0)

    assert failures_told(script, script.clock, 5) == [1, 2, 3, 4, 5]


def test_a_list_that_was_read_ends_a_row_of_failures() -> None:
    script = WatchScript(end=GONE, lasts_s=0.1)

    assert failures_told(script, script.clock, 5) == [1] * 5
