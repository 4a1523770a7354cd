"""The files of the public GPU-sharing trace: nodes, pods, and the orders in which the pods arrive."""

import csv
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from vramline.errors import RequestError

__all__ = ["WHOLE", "Trace", "TraceNode", "TracePod", "copy_nodes", "read_trace"]

WHOLE = 1_000
"""Thousandths of a card."""
_MOST_CARDS = 1_000


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One machine of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str
    rank: int
    """Ties go to the lowest."""


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    milli: int
    """Thousandths of each card."""
    models: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What kind of pod it is, as rejections are counted."""
        if not self.gpus:
            return "cpu"
        if self.gpus > 1:
            return "multi"
        return "share" if self.milli < WHOLE else "one"


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes, pods by name, and the order in which they arrive: places in the list of pods."""

    nodes: tuple[TraceNode, ...]
    pods: tuple[TracePod, ...]
    order: tuple[int, ...]


def read_trace(nodes: Path, pods: Path, orders: Path, *, variant: str, seed: int) -> Trace:
    """Read the trace's files; raises `RequestError`."""
    order, ranks = _read_orders(orders, variant, seed)
    machines = sorted(
        _rows(nodes, ("sn", "cpu_milli", "memory_mib", "gpu", "model")), key=lambda row: row["sn"]
    )
    if len(ranks) != len(machines):
        raise RequestError(
            subject=str(orders), problem=f"ranks {len(ranks)} nodes, but {nodes} lists {len(machines)}"
        )
    listed = sorted(
        _rows(pods, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")), key=lambda row: row["name"]
    )
    if max(order) >= len(listed):
        raise RequestError(
            subject=str(orders), problem=f"names pod {max(order)}, but {pods} lists {len(listed)}"
        )
    read = tuple(_read_node(row, rank, nodes) for row, rank in zip(machines, ranks, strict=True))
    twice = [name for name, count in Counter(node.name for node in read).items() if count > 1]
    if twice or not any(node.gpus for node in read):
        problem = f"lists {twice[0]} twice" if twice else "lists no GPU"
        raise RequestError(subject=str(nodes), problem=problem)
    return Trace(read, tuple(_read_pod(row, pods) for row in listed), tuple(order))


def copy_nodes(trace: Trace, copies: int) -> Trace:
    """Return the trace with so many of every node, for the same pods: a larger cluster of the same sort.

    Copies of a node follow each other in rank.
    """
    if copies == 1:
        return trace
    nodes = tuple(
        replace(node, name=f"{node.name}-{copy}", rank=node.rank * copies + copy)
        for copy in range(copies)
        for node in trace.nodes
    )
    return replace(trace, nodes=nodes)


def _rows(path: Path, columns: Iterable[str]) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise RequestError(subject=str(path), problem=f"lacks the columns {', '.join(missing)}")
            yield from reader
    except (OSError, UnicodeError, csv.Error) as error:
        raise RequestError(subject=str(path), problem=f"cannot be read ({error})") from None


def _read_node(row: dict[str, str], rank: int, path: Path) -> TraceNode:
    return TraceNode(
        name=row["sn"],
        cpu_milli=_number(row, "cpu_milli", path),
        memory_mib=_number(row, "memory_mib", path),
        gpus=_number(row, "gpu", path, most=_MOST_CARDS),
        model=row["model"] or "",
        rank=rank,
    )


def _read_pod(row: dict[str, str], path: Path) -> TracePod:
    gpus = _number(row, "num_gpu", path, most=_MOST_CARDS)
    milli = _number(row, "gpu_milli", path, least=1, most=WHOLE) if gpus == 1 else WHOLE * bool(gpus)
    models = tuple(sorted(name.lower() for name in (row.get("gpu_spec") or "").split("|") if name))
    return TracePod(
        name=row["name"],
        cpu_milli=_number(row, "cpu_milli", path),
        memory_mib=_number(row, "memory_mib", path),
        gpus=gpus,
        milli=milli,
        models=models if gpus else (),
    )


def _number(row: dict[str, str], column: str, path: Path, *, least: int = 0, most: int = 10**15) -> int:
    text = row[column] or ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most):
        accepted = f"whole numbers from {least} to {most}"
        raise RequestError(
            subject=str(path), field=column, value=text, problem="is no such number", accepted=accepted
        )
    return int(text)


def _read_orders(path: Path, variant: str, seed: int) -> tuple[list[int], list[int]]:
    """Read the order of arrival and the rank of the nodes."""
    name = f"{variant}_{seed}"
    lists = _read_lists(path)
    if name not in lists or f"{name}_noderank" not in lists:
        known = ", ".join(sorted(each for each in lists if not each.endswith("_noderank")))
        raise RequestError(
            subject=str(path), field="variant and seed", value=name, problem="is not there", accepted=known
        )
    order, ranks = _places(path, name, lists), _places(path, f"{name}_noderank", lists)
    if not order or len(set(ranks)) != len(ranks):
        problem = "gives two nodes the same rank" if order else "is empty"
        raise RequestError(subject=str(path), field=f"{name}_noderank" if order else name, problem=problem)
    return order, ranks


def _read_lists(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            if isinstance(loaded, NpzFile):
                return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise RequestError(subject=str(path), problem=f"cannot be read ({error.strerror})") from None
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        pass  # what NumPy says about it is advice to trust the file
    raise RequestError(subject=str(path), problem="is not whole lists of numbers", accepted="NumPy's .npz")


def _places(path: Path, name: str, lists: dict[str, object]) -> list[int]:
    """Return a list of whole numbers, none of them below 0."""
    found = lists[name]
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        raise RequestError(subject=str(path), field=name, problem="is no list of whole numbers")
    if found.size and found.min() < 0:
        raise RequestError(subject=str(path), field=name, value=int(found.min()), problem="is below 0")
    places: list[int] = found.tolist()
    return places
