"""What pods usually ask for: the memory of policies that think of the pods to come."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

import msgspec

from vramline.model.ask import Ask, Size

__all__ = ["AskClass", "Mix", "class_of"]

_WINDOW = 10_000
"""How many asks are remembered; what is older does not count any more."""
_TYPICAL = 0.95
"""The most frequent classes that make up this part of all asks are typical, the rest is chance."""
_MOST_CLASSES = 128
"""More typical classes than these say nothing more, but cost time in every decision."""
_MOST_NAMED = 1_000
"""Asks whose names of models are longer together are not remembered: that fills memory."""
_ENOUGH = 32
"""With fewer asks than this, nothing can be said about those to come."""
_SELDOM = 1_000
"""What is typical is counted anew when a quarter more was seen, at the latest after so many asks."""
_SAME = 0.1
"""How much the parts of the classes may shift, in sum, before what is typical has changed."""


class AskClass(msgspec.Struct, frozen=True, kw_only=True):
    """Asks that are the same to a policy."""

    cpu_milli: int = 0
    gpus: int = 0
    """0: a pod that wants no GPU, but takes CPU beside some."""
    size: Size | None = None
    use_models: tuple[str, ...] = ()
    avoid_models: tuple[str, ...] = ()


def class_of(ask: Ask) -> AskClass:
    """Return the class of an ask."""
    return AskClass(
        cpu_milli=ask.cpu_milli,
        gpus=ask.gpus,
        size=ask.size,
        use_models=ask.constraints.use_models,
        avoid_models=ask.constraints.avoid_models,
    )


class Mix:
    """Counts the classes of the last asks. What is typical changes rarely, so that it may be cached."""

    def __init__(self, counts: Mapping[AskClass, int] | None = None) -> None:
        """`counts`: a mix that is known from elsewhere; it is taken as it is and learns nothing."""
        self._fixed = counts is not None
        self._counts: Counter[AskClass] = Counter(counts or {})
        self._total = self._counts.total()
        self._window: deque[AskClass] = deque()
        self._seen = 0
        self._next = _ENOUGH
        self.version = 0
        """Grows when `typical` changes: rarely, because all that was weighed by it is weighed anew then."""
        self.typical: tuple[tuple[AskClass, int], ...] = self._find_typical()
        """The typical classes with how often they came, most frequent first."""

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to think ahead."""
        return self._total >= _ENOUGH

    @property
    def counts(self) -> Mapping[AskClass, int]:
        """Every class that is remembered, with how often it came."""
        return self._counts

    def see(self, asked: AskClass) -> None:
        """Count one ask. The caller counts every pod once, however often it is tried."""
        self.see_all((asked,))

    def see_all(self, asked: Sequence[AskClass]) -> None:
        """Count asks one after the other."""
        asked = [each for each in asked if not (each.use_models or each.avoid_models) or _is_short(each)]
        start = 0
        while start < len(asked) and not self._fixed:
            some = asked[start : start + max(1, self._next - self._seen)]
            start += len(some)
            self._count(some)
            self._seen += len(some)
            if self._seen >= self._next:
                self._next = self._seen + min(self._seen // 4, _SELDOM)
                self._renew()

    def _count(self, asked: Sequence[AskClass]) -> None:
        counts, window = self._counts, self._window
        window.extend(asked)
        for each in asked:
            counts[each] = counts.get(each, 0) + 1
        self._total += len(asked)
        while len(window) > _WINDOW:
            oldest = window.popleft()
            self._total -= 1
            left = counts[oldest] - 1
            if left:
                counts[oldest] = left
            else:
                del counts[oldest]

    def _renew(self) -> None:
        typical = self._find_typical()
        if _shift(dict(self.typical), dict(typical)) > _SAME:
            self.typical = typical
            self.version += 1

    def _find_typical(self) -> tuple[tuple[AskClass, int], ...]:
        """Return the most frequent classes until they make up `_TYPICAL`; equal ones by their fields."""
        wanted, found = _TYPICAL * self._counts.total(), 0
        typical: list[tuple[AskClass, int]] = []
        for asked, count in sorted(self._counts.items(), key=lambda item: (-item[1], _order(item[0]))):
            if found >= wanted or len(typical) == _MOST_CLASSES:
                break
            typical.append((asked, count))
            found += count
        return tuple(typical)


def _shift(before: Mapping[AskClass, int], after: Mapping[AskClass, int]) -> float:
    """Return how much the parts of all classes differ, in sum: 0 for the same, 2 for nothing in common."""
    had, have = sum(before.values()) or 1, sum(after.values()) or 1
    return sum(abs(after.get(asked, 0) / have - before.get(asked, 0) / had) for asked in {*before, *after})


def _is_short(asked: AskClass) -> bool:
    return sum(map(len, asked.use_models)) + sum(map(len, asked.avoid_models)) <= _MOST_NAMED


def _order(asked: AskClass) -> bytes:
    return msgspec.msgpack.encode(asked)
