"""History that outlives the process: bounded, and harmless whatever happens to its file."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from telemetry.records import a_bound, a_refused
from vramline.explain.chronicle import CardEvent, CardEventKind, CardSample, Span
from vramline.explain.history import DecisionRecord, History
from vramline.telemetry.archive import Archive
from vramline.telemetry.archive_file import ArchiveBounds, CardRow

T = TypeVar("T")

MIB = 2**20
ALL = Span(since=0.0, until=1e12, most=100_000)


def sample(at: float, used: int | None = 100) -> CardSample:
    return CardSample(
        at=at, usable_mib=32_600, held_mib=8_000, releasing_mib=0, unmanaged_mib=used, used_mib=used
    )


def with_archive(
    path: Path | str,
    act: Callable[[Archive], Coroutine[Any, Any, T]],
    *,
    bounds: ArchiveBounds | None = None,
    now: float = 1_000.0,
) -> T:
    async def live() -> T:
        archive = Archive(str(path), bounds, clock=lambda: now)
        try:
            return await act(archive)
        finally:
            await archive.close()

    return asyncio.run(live())


def keep(archive: Archive, *records: DecisionRecord) -> None:
    for record in records:
        archive.keep_decision(lambda record=record: record)  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_what_was_kept_is_found_by_pod_by_name_and_by_time(kind: str, tmp_path: Path) -> None:
    first, second = a_bound("ns/a", at=10.0, number=1), a_bound("other/a", at=20.0, number=2)

    async def act(archive: Archive) -> None:
        keep(archive, first, second)

        assert await archive.decisions_of("ns/a") == [first]
        assert await archive.decisions_of("a") == [second, first]
        assert await archive.decisions(before=20.0) == [first]
        assert await archive.decisions(most=1) == [second]
        assert await archive.decisions_of("ns/unknown") == []

    with_archive(tmp_path / "history.db" if kind == "file" else "", act)


def test_a_restart_forgets_nothing_and_numbers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.db"

    async def yesterday(archive: Archive) -> None:
        history = History()
        archive.serve(history)
        history.add(a_bound("ns/a", at=10.0))
        history.add_later("ns/b", "uid-b", lambda: a_bound("ns/b", at=11.0))
        archive.keep_cards([CardRow("GPU-1", sample(12.0))], [])

    async def today(archive: Archive) -> None:
        history = History()
        archive.serve(history)

        assert [record.pod for record in history.of_pod("ns/a")] == ["ns/a"]
        assert [record.id for record in await archive.decisions()] == [2, 1]
        assert await archive.samples("GPU-1", ALL) == [sample(12.0)]
        assert history.add(a_bound("ns/c", at=13.0)).id == 3

    with_archive(path, yesterday)
    with_archive(path, today)


def test_a_process_that_is_killed_loses_only_what_was_not_written_yet(tmp_path: Path) -> None:
    path = tmp_path / "history.db"

    async def die() -> None:
        archive = Archive(str(path), clock=lambda: 1_000.0)
        keep(archive, a_bound("ns/a", at=10.0))
        await archive.flush()
        keep(archive, a_bound("ns/b", at=11.0))
        os._exit(9)

    pid = os.fork()
    if pid == 0:
        asyncio.run(die())
    os.waitpid(pid, 0)

    async def act(archive: Archive) -> None:
        assert [record.pod for record in await archive.decisions()] == ["ns/a"]
        assert (await archive.state()).problem == ""

    with_archive(path, act)


def test_the_same_refusal_of_the_same_pod_is_written_once_in_ten_minutes() -> None:
    async def act(archive: Archive) -> None:
        keep(archive, *(a_refused("ns/a", at=float(at)) for at in range(0, 1_200, 10)))
        keep(archive, a_refused("ns/b", at=5.0))

        assert [record.at for record in await archive.decisions_of("ns/a")] == [600.0, 0.0]
        assert len(await archive.decisions_of("ns/b")) == 1

    with_archive("", act)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_size_is_bounded_and_the_oldest_goes_first(kind: str, tmp_path: Path) -> None:
    path, most = tmp_path / "history.db", 1 * MIB

    async def act(archive: Archive) -> None:
        for turn in range(40):
            rows = [CardRow(f"GPU-{card}", sample(float(turn * 10 + card / 100))) for card in range(1_000)]
            keep(archive, *(a_bound(f"ns/p{turn}-{each}", at=float(turn)) for each in range(30)))
            archive.keep_cards(rows, [])
            await archive.flush()
            state = await archive.state()
            assert state.used_bytes <= most
        assert state.problem == ""
        assert state.lost == 0
        assert state.decisions > 0
        assert state.samples > 0
        assert (await archive.decisions(most=1))[0].at == 39.0
        assert state.oldest_at is not None
        assert state.oldest_at > 0.0

    with_archive(path if kind == "file" else "", act, bounds=ArchiveBounds(most, 1e9))
    if kind == "file":
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 2 * most


def test_many_samples_do_not_drive_out_decisions() -> None:
    async def act(archive: Archive) -> None:
        keep(archive, a_bound("ns/yesterday", at=1.0))
        for turn in range(60):
            archive.keep_cards([CardRow(f"GPU-{card}", sample(float(turn))) for card in range(1_000)], [])
            await archive.flush()

        assert len(await archive.decisions_of("ns/yesterday")) == 1

    with_archive("", act, bounds=ArchiveBounds(1 * MIB, 1e9))


def test_age_is_bounded() -> None:
    async def act(archive: Archive) -> None:
        keep(archive, a_bound("ns/old", at=10.0), a_bound("ns/new", at=990.0))
        archive.keep_cards([CardRow("GPU-1", sample(10.0)), CardRow("GPU-1", sample(995.0))], [])

        assert [record.pod for record in await archive.decisions()] == ["ns/new"]
        assert await archive.samples("GPU-1", ALL) == [sample(995.0)]

    with_archive("", act, bounds=ArchiveBounds(8 * MIB, 100.0), now=1_000.0)


def test_a_burst_is_put_into_words_after_it() -> None:
    read: list[str] = []

    async def act(archive: Archive) -> None:
        for number in range(30):
            record = a_bound(f"ns/p{number}", at=10.0 + number, number=number + 1)
            archive.keep_decision(lambda record=record: read.append(record.pod) or record)  # type: ignore[misc, func-returns-value]
        await archive.flush(words_s=0.0)
        assert not read
        assert len(await archive.decisions()) == 30  # who asks gets all of it

    with_archive("", act)


def test_what_waits_to_be_written_is_bounded_too() -> None:
    archive = Archive()
    record = a_bound("ns/a", at=1.0)

    for _ in range(10_500):
        archive.keep_decision(lambda: record)

    assert archive.lost == 500
    asyncio.run(archive.close())


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"this is no database at all " * 500, id="something else"),
        pytest.param(b"SQLite format 3\x00" + bytes(5_000), id="only its beginning is right"),
        pytest.param(None, id="torn in the middle"),
    ],
)
def test_a_file_that_cannot_be_read_is_put_aside_and_said(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    if content is None:

        async def fill(archive: Archive) -> None:
            keep(archive, *(a_bound(f"ns/{each}", at=1.0) for each in range(200)))

        with_archive(path, fill)
        whole = path.read_bytes()
        content = whole[:4_096] + os.urandom(len(whole) - 4_096)
    path.write_bytes(content)

    async def act(archive: Archive) -> None:
        keep(archive, a_bound("ns/a", at=1.0))
        assert len(await archive.decisions()) == 1
        state = await archive.state()
        assert "put aside as history.db.broken" in state.problem
        assert state.where == str(path)

    with_archive(path, act)
    assert (tmp_path / "history.db.broken").read_bytes() == content


def test_a_file_of_another_layout_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    db = sqlite3.connect(path)
    db.executescript("CREATE TABLE decisions (x); PRAGMA user_version = 99;")
    db.close()

    async def act(archive: Archive) -> None:
        assert "its layout is 99" in (await archive.state()).problem

    with_archive(path, act)


def test_a_path_that_cannot_be_used_means_memory_and_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def act(archive: Archive) -> None:
        keep(archive, a_bound("ns/a", at=1.0))
        assert len(await archive.decisions()) == 1
        state = await archive.state()
        assert state.where == "memory"
        assert "history is kept in memory" in state.problem

    with_archive(tmp_path / "file" / "history.db", act)


def test_a_second_process_with_the_same_file_does_without_it(tmp_path: Path) -> None:
    path = tmp_path / "history.db"

    async def act(first: Archive) -> None:
        keep(first, a_bound("ns/a", at=1.0))
        await first.flush()
        second = Archive(str(path), clock=lambda: 1_000.0)
        keep(second, a_bound("ns/b", at=2.0))
        assert [record.pod for record in await second.decisions()] == ["ns/b"]
        assert "locked" in (await second.state()).problem
        await second.close()
        assert [record.pod for record in await first.decisions()] == ["ns/a"]

    with_archive(path, act)


def test_a_disk_that_fills_up_costs_history_and_nothing_else(tmp_path: Path) -> None:
    """The file is made read-only behind the archive's back, and its pages are torn: every write fails."""

    async def act(archive: Archive) -> None:
        keep(archive, a_bound("ns/a", at=1.0))
        await archive.flush()
        archive._file._db.execute("PRAGMA query_only = ON")
        keep(archive, a_bound("ns/b", at=2.0))
        archive.keep_cards([CardRow("GPU-1", sample(2.0))], [])
        await archive.flush()

        assert archive.lost == 2
        assert "not written" in archive.problem
        assert [record.pod for record in await archive.decisions()] == ["ns/a"]

        archive._file._db.execute("PRAGMA query_only = OFF")
        keep(archive, a_bound("ns/c", at=3.0))
        assert [record.pod for record in await archive.decisions()] == ["ns/c", "ns/a"]
        assert archive.problem == ""

    with_archive(tmp_path / "history.db", act)


def test_a_series_begins_with_what_stood_and_keeps_its_peaks() -> None:
    async def act(archive: Archive) -> None:
        rows = [CardRow("GPU-1", sample(float(at), used=9_000 if at == 555 else 100)) for at in range(1_000)]
        archive.keep_cards([*rows, CardRow("GPU-2", sample(5.0))], [])
        archive.keep_cards([], [])

        whole = await archive.samples("GPU-1", Span(since=100.5, until=200.0, most=1_000))
        assert (whole[0].at, whole[1].at, whole[-1].at) == (100.0, 101.0, 200.0)
        thin = await archive.samples("GPU-1", Span(since=0.0, until=1e6, most=50))
        assert len(thin) == 50
        assert max(each.used_mib or 0 for each in thin) == 9_000
        assert [each.at for each in thin] == sorted(each.at for each in thin)
        assert await archive.samples("GPU-9", ALL) == []

    with_archive("", act)


def test_what_nobody_saw_stays_unknown(tmp_path: Path) -> None:
    async def act(archive: Archive) -> None:
        archive.keep_cards([CardRow("GPU-1", sample(1.0, used=None))], [])
        assert await archive.samples("GPU-1", ALL) == [sample(1.0, used=None)]

    with_archive(tmp_path / "history.db", act)


def test_events_of_one_card_and_of_all() -> None:
    one = CardEvent(at=1.0, node="n1", gpu="GPU-1", kind=CardEventKind.HEALTH, text="was Healthy, is Suspect")
    two = CardEvent(at=2.0, node="n1", gpu="GPU-2", kind=CardEventKind.SIGHT, text="is seen again")

    async def act(archive: Archive) -> None:
        archive.keep_cards([], [one, two])
        assert await archive.events("GPU-1") == [one]
        assert await archive.events() == [two, one]

    with_archive("", act)
