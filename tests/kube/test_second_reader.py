"""Another process does the work; what it does not do is given back."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from vramline.kube.second_reader import SecondReader


def run(
    story: Callable[[SecondReader[str]], Awaitable[None]], work: Callable[[bytes], bytes] = bytes.upper
) -> None:
    reader = SecondReader(work, bytes.decode)

    async def tell() -> None:
        try:
            await story(reader)
        finally:
            await reader.close()

    asyncio.run(tell())


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(max_size=200_000), max_size=12))
def test_pieces_come_back_in_order_worked_on(pieces: list[bytes]) -> None:
    async def story(reader: SecondReader[str]) -> None:
        async def give() -> None:
            for piece in pieces:
                await reader.give(piece.hex().encode())

        giving = asyncio.create_task(give())
        found = []
        for _ in pieces:
            while not reader.under_way:  # noqa: ASYNC110 — until it is given
                await asyncio.sleep(0)
            found.append(await reader.take())
        await giving
        assert found == [(piece.hex().encode(), piece.hex().upper()) for piece in pieces]

    run(story)


def test_a_piece_comes_back_as_it_is_where_the_process_fails() -> None:
    def fail(_piece: bytes) -> bytes:
        raise OSError("no")

    async def story(reader: SecondReader[str]) -> None:
        await reader.give(b"one")
        await reader.give(b"two")
        assert [await reader.take(), await reader.take()] == [(b"one", None), (b"two", None)]

    run(story, fail)


def test_a_piece_comes_back_as_it_is_where_the_process_is_killed() -> None:
    before = children()
    reader = SecondReader(bytes.upper, bytes.decode)
    (pid,) = children() - before

    async def story() -> None:
        await reader.give(b"one")
        assert await reader.take() == (b"one", "ONE")
        os.kill(int(pid), signal.SIGKILL)
        await reader.give(b"two")
        assert await reader.take() == (b"two", None)
        await reader.close()

    asyncio.run(story())


def test_after_an_answer_that_makes_no_sense_none_is_believed() -> None:
    reader = SecondReader(bytes.upper, msgspec.json.decode)

    async def story() -> None:
        await reader.give(b"1")
        await reader.give(b"x")
        await reader.give(b"2")
        assert [await reader.take() for _ in range(3)] == [(b"1", 1), (b"x", None), (b"2", None)]
        assert not reader.is_open
        await reader.close()

    asyncio.run(story())


def test_it_ends_when_it_is_closed_and_nothing_of_it_is_left() -> None:
    before = children()

    async def story(reader: SecondReader[str]) -> None:
        assert len(children() - before) == 1
        await reader.give(b"one")
        await reader.close()
        assert not reader.is_open
        assert await reader.take() == (b"one", None)
        await reader.close()

    run(story)
    assert children() == before
