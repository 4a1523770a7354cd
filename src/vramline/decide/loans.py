"""Arrays that are kept up to date in place, and handed out without a copy."""

import weakref

__all__ = ["Loan", "Loans"]


class Loan:
    """Whoever holds this may read what it was given: it stays as it is."""

    __slots__ = ("__weakref__",)


class Loans:
    """Knows whether arrays are still in somebody's hands; if so, who wants to change them changes a copy."""

    __slots__ = ("_given", "_taken")

    def __init__(self, taken: Loan | None = None) -> None:
        """`taken`: the arrays are somebody else's for now."""
        self._taken = taken
        self._given: weakref.ref[Loan] | None = None

    def give(self) -> Loan:
        """Hand the arrays out as they are now."""
        loan = self._given() if self._given is not None else None
        if loan is None:
            loan = Loan()
            self._given = weakref.ref(loan)
        return loan

    @property
    def must_copy(self) -> bool:
        """Whether a change of the arrays would be seen by others."""
        return self._taken is not None or (self._given is not None and self._given() is not None)

    def copied(self) -> None:
        """The arrays are new ones, which nobody else knows."""
        self._taken = self._given = None
