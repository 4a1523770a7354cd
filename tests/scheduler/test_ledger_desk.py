"""When ledgers are written: at once for who comes alone, together for who comes in company."""

import asyncio
import random
import selectors
from collections.abc import Awaitable, Callable, Iterable

import pytest

from scheduler.memory_store import MemoryStore
from scheduler.replicas import Replica
from vramline.model.claim import Claim
from vramline.scheduler.ledger_desk import LedgerDesk
from vramline.scheduler.store import Conflict, Unclear, Written
from vramline.units import Mib
from vramline.wire.ledger_v1alpha1 import GpuLedger

APART_S = 0.05


class _Leaping(selectors.SelectSelector):
    """Never waits: the time that nobody needs is skipped."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class _LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now


class _Desk:
    """A desk whose writes are noted: when, to which node, how many claims were new."""

    def __init__(self) -> None:
        self.writes: list[tuple[float, str, int]] = []
        desk = self

        class Noting(MemoryStore):
            async def write_ledger(self, ledger: GpuLedger) -> Written | Conflict | Unclear:
                known = self.ledgers.get(ledger.node)
                new = len(ledger.claims) - (len(known.claims) if known is not None else 0)
                desk.writes.append((round(asyncio.get_running_loop().time(), 3), ledger.node, new))
                return await super().write_ledger(ledger)

        store = Noting(random.Random(1))
        replica = Replica(store)
        self._desk = LedgerDesk(replica.live, store, lambda: 1, apart_s=APART_S)

    async def bind(self, number: int, at: float, node: str = "n1") -> None:
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        claim = Claim(pod_uid=f"uid-{number}", pod=f"ns/p{number}", gpu=f"GPU-{node}", mib=Mib(100))
        assert isinstance(await self._desk.write(node, add=[claim]), Written)


def writes_of(*moments: tuple[float, str]) -> list[tuple[float, str, int]]:
    """Bind a pod at each of these moments, and return the writes."""

    async def story() -> list[tuple[float, str, int]]:
        desk = _Desk()
        await asyncio.gather(*(desk.bind(number, at, node) for number, (at, node) in enumerate(moments)))
        return desk.writes

    return run(story)


def run(story: Callable[[], Awaitable[list[tuple[float, str, int]]]]) -> list[tuple[float, str, int]]:
    async def whole() -> list[tuple[float, str, int]]:
        return await story()

    with asyncio.Runner(loop_factory=_LeapingLoop) as runner:
        return runner.run(whole())


def burst(start: float, pods: int, node: str) -> Iterable[tuple[float, str]]:
    return ((start + 0.01 * number, node) for number in range(pods))


def test_who_comes_alone_is_written_at_once() -> None:
    assert writes_of((1.0, "n1"), (2.0, "n2"), (3.0, "n1")) == [
        (1.0, "n1", 1),
        (2.0, "n2", 1),
        (3.0, "n1", 1),
    ]


def test_a_ledger_is_not_written_again_within_a_moment() -> None:
    first, second = writes_of((1.0, "n1"), (1.01, "n1"))

    assert first == (1.0, "n1", 1)
    assert second == (1.0 + APART_S, "n1", 1)


def test_the_longer_a_burst_the_more_go_together() -> None:
    sizes = [size for _, _, size in writes_of(*burst(1.0, 60, "n1"))]

    assert sum(sizes) == 60
    assert sizes[0] == 1
    assert max(sizes) >= 20
    assert len(sizes) <= 6


def test_in_a_burst_the_first_on_another_node_waits_for_company_too() -> None:
    writes = writes_of(*burst(1.0, 30, "n1"), *burst(1.3, 20, "n2"))

    assert [size for _, node, size in writes if node == "n2"] == [20]


def test_when_nobody_comes_any_more_the_last_do_not_wait_longer() -> None:
    writes = writes_of(*burst(1.0, 40, "n1"))

    last_came = 1.0 + 0.01 * 39
    assert writes[-1][0] == pytest.approx(last_came + APART_S, abs=0.001)


def test_after_a_burst_who_comes_alone_soon_does_not_wait() -> None:
    alone = [(3.0 + number, "n2") for number in range(8)]
    writes = [when for when, node, _ in writes_of(*burst(1.0, 40, "n1"), *alone) if node == "n2"]

    waits = [round(when - came, 3) for when, (came, _) in zip(writes, alone, strict=True)]
    assert max(waits) <= APART_S
    assert waits[-1] == 0.0
