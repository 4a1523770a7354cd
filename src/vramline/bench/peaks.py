"""How much memory processes held that come and go while another is measured."""

import threading
from pathlib import Path
from typing import Self

__all__ = ["PeakOfChildren"]

_EVERY_S = 0.02


class PeakOfChildren:
    """Looks at the children of a process for as long as the block lasts."""

    def __init__(self, pid: int) -> None:
        self.mib = 0.0
        """The most that one of them was seen to have held."""
        self._pid = pid
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._looking.join()

    def _look_on(self) -> None:
        while True:
            for child in _read(Path(f"/proc/{self._pid}/task/{self._pid}/children")).split():
                lines = _read(Path(f"/proc/{child}/status")).splitlines()
                held = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
                self.mib = max([self.mib, *(round(each / 1024, 1) for each in held)])
            if self._ended.wait(_EVERY_S):
                return


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""  # it has ended
