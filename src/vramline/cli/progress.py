"""A progress bar on standard error: only on a terminal, only for what takes a while."""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vramline.cli.output import get_console

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

__all__ = ["Progress"]


class Progress:
    """Stages of one piece of work, each with its own bar; all bars are gone in the end."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bars: RichProgress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def stage(self, name: str, *, least: int) -> Callable[[int, int], None]:
        """Return what to call with (done, total); a stage with a total below `least` shows nothing."""
        task = None

        def report(done: int, total: int) -> None:
            nonlocal task
            if total < least or self._quiet:
                return
            bars = self._show()
            if bars is not None:
                task = bars.add_task(name, total=total) if task is None else task
                bars.update(task, completed=done, total=total)

        return report

    def _show(self) -> "RichProgress | None":
        if self._bars is None:
            console = get_console(stderr=True)
            if not console.is_terminal:
                self._quiet = True
                return None
            from rich.progress import Progress as RichProgress  # noqa: PLC0415 — most runs need none

            self._bars = RichProgress(console=console, transient=True)
            self._bars.start()
        return self._bars
