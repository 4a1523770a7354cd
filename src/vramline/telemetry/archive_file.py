"""History in one SQLite file, or in memory: rows in, rows out, and never more than its bounds.

Everything here is called from one thread and may take a while. A file that cannot be read is put aside, not
deleted; one that cannot be opened (no right, no folder, another process has it) is done without.
"""

import contextlib
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from vramline.explain.chronicle import CardEvent, CardEventKind, CardSample, ChronicleState, Span
from vramline.explain.history import DecisionRecord, KeptRecord

__all__ = ["MEMORY", "ArchiveBounds", "ArchiveFile", "CardRow"]

MEMORY = "memory"
BROKEN = ".broken"
"""Follows the name of a file that was put aside."""

_MOST_IN_MEMORY = 32 * 2**20
_LAYOUT = 1
"""Number of the tables below; a file with another one is put aside."""
_TABLES = """
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY, id INTEGER, at REAL, pod TEXT, name TEXT, uid TEXT, body BLOB);
CREATE INDEX decisions_of_pod ON decisions (pod, seq);
CREATE INDEX decisions_of_name ON decisions (name, seq);
CREATE TABLE cards (card INTEGER PRIMARY KEY, gpu TEXT UNIQUE);
CREATE TABLE samples (
    seq INTEGER PRIMARY KEY, card INTEGER, at REAL,
    usable INTEGER, held INTEGER, releasing INTEGER, unmanaged INTEGER, used INTEGER);
CREATE INDEX samples_of_card ON samples (card, at);
CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL, node TEXT, gpu TEXT, kind TEXT, text TEXT);
CREATE INDEX events_of_gpu ON events (gpu, seq);
"""
_AGING = ("decisions", "samples", "events")
_SAMPLE_BYTES = 60
"""What a sample takes, its place in the index included; about, to tell what fills the file."""
_STEP = 2_000
"""Rows that are dropped at once."""
_MOST_ROWS = 50_000
"""Samples that are looked at for one answer."""


class ArchiveBounds(NamedTuple):
    """How much is kept."""

    most_bytes: int = 256 * 2**20
    most_age_s: float = 7 * 86_400.0


class CardRow(NamedTuple):
    """A sample, and of which card it is."""

    gpu: str
    sample: CardSample


class ArchiveFile:
    """One open file; to be used by one thread."""

    def __init__(self, path: str, bounds: ArchiveBounds) -> None:
        """An empty `path` is in memory. Never fails: `problem` says what is not as it was wished."""
        self.bounds = bounds
        self.where = path or MEMORY
        self.problem = ""
        self._cards: dict[str, int] = {}
        self._db = self._open_memory() if not path else self._open_path(Path(path))

    def close(self) -> None:
        """Write what is left; an error has been told before."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    @property
    def most_bytes(self) -> int:
        """The bound on size; in memory it is lower."""
        return (
            min(self.bounds.most_bytes, _MOST_IN_MEMORY) if self.where == MEMORY else self.bounds.most_bytes
        )

    # ── in ───────────────────────────────────────────────────────────────────────────────────────

    def write(
        self,
        decisions: Iterable[DecisionRecord],
        samples: Iterable[CardRow],
        events: Iterable[CardEvent],
        *,
        now: float,
    ) -> None:
        """Add rows and drop what is too old or too much. All of it or, with `sqlite3.Error`, nothing."""
        rows: list[tuple[object, ...]] = [
            (each.id, each.at, each.pod, each.pod.partition("/")[2], each.pod_uid, _pack(each))
            for each in decisions
        ]
        told: list[tuple[object, ...]] = [
            (each.at, each.node, each.gpu, each.kind.value, each.text) for each in events
        ]
        try:
            with self._db:
                self._insert(rows, list(samples), told)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            with self._db:  # our own bound, or the disk's: make room once
                self._drop_oldest()
            with self._db:
                self._insert(rows, list(samples), told)
        with self._db:
            self._drop_old(now - self.bounds.most_age_s)
            for _ in range(50):
                if self.used_bytes() <= self.most_bytes * 9 // 10:
                    break
                self._drop_oldest()

    def _insert(
        self, decisions: list[tuple[object, ...]], samples: list[CardRow], events: list[tuple[object, ...]]
    ) -> None:
        db = self._db
        db.executemany(
            "INSERT INTO decisions (id, at, pod, name, uid, body) VALUES (?, ?, ?, ?, ?, ?)", decisions
        )
        db.executemany("INSERT INTO events (at, node, gpu, kind, text) VALUES (?, ?, ?, ?, ?)", events)
        db.executemany(
            "INSERT INTO samples (card, at, usable, held, releasing, unmanaged, used)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self._card(row.gpu),
                    row.sample.at,
                    row.sample.usable_mib,
                    row.sample.held_mib,
                    row.sample.releasing_mib,
                    row.sample.unmanaged_mib,
                    row.sample.used_mib,
                )
                for row in samples
            ],
        )

    def _card(self, gpu: str) -> int:
        known = self._cards.get(gpu)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO cards (gpu) VALUES (?)", (gpu,))
            known = int(self._db.execute("SELECT card FROM cards WHERE gpu = ?", (gpu,)).fetchone()[0])
            self._cards[gpu] = known
        return known

    # ── bounds ───────────────────────────────────────────────────────────────────────────────────

    def used_bytes(self) -> int:
        """What the rows take; pages that were given back are filled again before the file grows."""
        pages, idle, size = (
            int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - idle) * size

    def _drop_old(self, before: float) -> None:
        for table in _AGING:
            first, _ = self._ends(table)
            self._db.execute(
                f"DELETE FROM {table} WHERE seq < ? AND at < ?",  # noqa: S608 — names from above
                (first + _STEP, before),
            )

    def _drop_oldest(self) -> None:
        """Drop the oldest rows of whatever fills the file most."""
        first, last = self._ends("samples")
        by_samples = (last - first) * _SAMPLE_BYTES > self.used_bytes() // 2
        for table in ("samples",) if by_samples else ("decisions", "events"):
            first, last = self._ends(table)
            step = max(1, min(_STEP, (last - first) // 10))
            self._db.execute(f"DELETE FROM {table} WHERE seq < ?", (first + step,))  # noqa: S608 — as above

    def _ends(self, table: str) -> tuple[int, int]:
        """Return the first row's number and the one after the last."""
        query = f"SELECT (SELECT min(seq) FROM {table}), (SELECT max(seq) FROM {table})"  # noqa: S608 — as above
        first, last = self._db.execute(query).fetchone()
        return (0, 0) if first is None else (int(first), int(last) + 1)

    # ── out ──────────────────────────────────────────────────────────────────────────────────────

    def last_id(self) -> int:
        """Return the number of the newest decision; 0: there is none."""
        found = self._db.execute("SELECT id FROM decisions ORDER BY seq DESC LIMIT 1").fetchone()
        return 0 if found is None else int(found[0])

    def recent(self, most: int) -> list[KeptRecord]:
        """Return the newest decisions, oldest first, each to be read when somebody asks."""
        query = "SELECT id, pod, uid, body FROM decisions ORDER BY seq DESC LIMIT ?"
        rows = self._db.execute(query, (most,)).fetchall()
        return [KeptRecord(number, pod, uid, partial(_unpack, body)) for number, pod, uid, body in rows[::-1]]

    def decisions_of(self, pod: str, most: int) -> list[DecisionRecord]:
        """Return the decisions about a pod, newest first."""
        column = "pod" if "/" in pod else "name"
        query = f"SELECT body FROM decisions WHERE {column} = ? ORDER BY seq DESC LIMIT ?"  # noqa: S608 — as above
        return [_unpack(body) for (body,) in self._db.execute(query, (pod, most))]

    def decisions(self, before: float | None, most: int) -> list[DecisionRecord]:
        """Return the newest decisions that are older than `before`."""
        query = "SELECT body FROM decisions WHERE ? IS NULL OR at < ? ORDER BY seq DESC LIMIT ?"
        return [_unpack(body) for (body,) in self._db.execute(query, (before, before, most))]

    def samples(self, gpu: str, span: Span) -> list[CardSample]:
        """Return a card's samples, oldest first, with the one that stood at the beginning."""
        found = self._db.execute("SELECT card FROM cards WHERE gpu = ?", (gpu,)).fetchone()
        if found is None:
            return []
        fields = "SELECT at, usable, held, releasing, unmanaged, used FROM samples WHERE card = ?"
        before = self._db.execute(f"{fields} AND at < ? ORDER BY at DESC LIMIT 1", (found[0], span.since))
        within = self._db.execute(
            f"{fields} AND at BETWEEN ? AND ? ORDER BY at LIMIT ?",
            (found[0], span.since, span.until, _MOST_ROWS),
        )
        rows = [_sample_of(row) for row in [*before.fetchall(), *within.fetchall()]]
        return _thin(rows, span.most)

    def events(self, gpu: str | None, most: int) -> list[CardEvent]:
        """Return what befell a card, newest first."""
        where = "" if gpu is None else "WHERE gpu = :gpu"
        query = f"SELECT at, node, gpu, kind, text FROM events {where} ORDER BY seq DESC LIMIT :most"  # noqa: S608 — as above
        return [
            CardEvent(at=at, node=node, gpu=uuid, kind=CardEventKind(kind), text=text)
            for at, node, uuid, kind, text in self._db.execute(query, {"gpu": gpu, "most": most})
        ]

    def state(self, problem: str, lost: int) -> ChronicleState:
        """Say how full it is."""
        decisions, samples = self._ends("decisions"), self._ends("samples")
        oldest = self._db.execute("SELECT at FROM decisions ORDER BY seq LIMIT 1").fetchone()
        return ChronicleState(
            where=self.where,
            problem=problem or self.problem,
            used_bytes=self.used_bytes(),
            most_bytes=self.most_bytes,
            most_age_s=self.bounds.most_age_s,
            decisions=decisions[1] - decisions[0],
            samples=samples[1] - samples[0],
            oldest_at=None if oldest is None else float(oldest[0]),
            lost=lost,
        )

    # ── opening ──────────────────────────────────────────────────────────────────────────────────

    def _open_path(self, path: Path) -> sqlite3.Connection:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return self._open(str(path))
        except sqlite3.OperationalError as error:
            return self._do_without(path, error)
        except sqlite3.DatabaseError as error:
            aside = path.with_name(path.name + BROKEN)
            try:
                path.replace(aside)
                for rest in ("-wal", "-shm"):
                    path.with_name(path.name + rest).unlink(missing_ok=True)
                db = self._open(str(path))
            except (OSError, sqlite3.Error) as again:
                return self._do_without(path, again)
            self.problem = f"{path} could not be read ({error}); it was put aside as {aside.name}"
            return db
        except OSError as error:
            return self._do_without(path, error)

    def _do_without(self, path: Path, error: Exception) -> sqlite3.Connection:
        self.where = MEMORY
        self.problem = f"{path} cannot be used ({error}); history is kept in memory"
        return self._open_memory()

    def _open_memory(self) -> sqlite3.Connection:
        return self._open(":memory:")

    def _open(self, name: str) -> sqlite3.Connection:
        """Open, check and prepare. One process has a file at a time: a second one is refused."""
        db = sqlite3.connect(name, timeout=1.0, check_same_thread=False)
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA journal_size_limit = {4 * 2**20}")
            layout = db.execute("PRAGMA user_version").fetchone()[0]
            if layout == 0 and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                db.executescript(f"BEGIN EXCLUSIVE; {_TABLES} PRAGMA user_version = {_LAYOUT}; COMMIT;")
            elif layout != _LAYOUT:
                raise sqlite3.DatabaseError(f"its layout is {layout}, not {_LAYOUT}")
            elif (verdict := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(verdict)
            size = int(db.execute("PRAGMA page_size").fetchone()[0])
            db.execute(f"PRAGMA max_page_count = {max(64, self.most_bytes // size)}")
        except sqlite3.Error:
            db.close()
            raise
        return db


def _pack(record: DecisionRecord) -> bytes:
    return zlib.compress(msgspec.json.encode(record), level=3)


def _unpack(body: bytes) -> DecisionRecord:
    return msgspec.json.decode(zlib.decompress(body), type=DecisionRecord)


def _sample_of(row: Sequence[float | None]) -> CardSample:
    at, usable, held, releasing, unmanaged, used = row
    return CardSample(
        at=at or 0.0,
        usable_mib=int(usable or 0),
        held_mib=int(held or 0),
        releasing_mib=int(releasing or 0),
        unmanaged_mib=None if unmanaged is None else int(unmanaged),
        used_mib=None if used is None else int(used),
    )


def _thin(rows: list[CardSample], most: int) -> list[CardSample]:
    """Let the sample with the highest use stand for its neighbours; the first and the last stay."""
    if len(rows) <= most:
        return rows
    inner, groups = rows[1:-1], max(1, most - 2)
    bounds = [len(inner) * number // groups for number in range(groups + 1)]
    peaks = [
        max(inner[start:end], key=lambda each: (each.used_mib is not None, each.used_mib or 0))
        for start, end in pairwise(bounds)
        if end > start
    ]
    return [rows[0], *peaks, rows[-1]]
