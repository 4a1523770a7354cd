"""Take a picture of a real run: `python tools/picture.py OUT.svg WIDTH COMMAND…`.

The command runs in a pseudo-terminal of WIDTH columns, so it prints what a person would see, colours and
all; rich draws that as an SVG.
"""

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from termios import TIOCSWINSZ

from rich.console import Console
from rich.text import Text


def run_in_terminal(command: list[str], columns: int) -> str:
    """Run a command in a terminal of its own and return everything it wrote there."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:  # noqa: S603
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the terminal is closed when the command ends
                break
            if not piece:
                break
            written += piece
        process.wait()
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def main() -> None:
    """Draw one command."""
    target, columns, command = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    shown = " ".join([Path(command[0]).name, *command[1:]])
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {shown}", style="bold"))
    console.print(Text.from_ansi(run_in_terminal(command, columns)))
    # The picture loads nothing from elsewhere: the reader's own monospace font will do.
    target.write_text(
        re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="vramline"), flags=re.DOTALL)
    )


if __name__ == "__main__":
    main()
