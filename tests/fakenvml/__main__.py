"""Run a command with `--library` of a stand-in NVML with eight cards: python -m fakenvml vramline bench all.

Without a C compiler there is no library, and the command runs without the option.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fakenvml import Card, CompilerMissingError, FakeNvml


def main(command: list[str]) -> int:
    """Return the command's exit status."""
    with tempfile.TemporaryDirectory(prefix="fakenvml-") as folder:
        try:
            cards = (Card(f"GPU-{number}", used=1_000, processes={4_711: 1_000}) for number in range(8))
            nvml = FakeNvml(Path(folder), *cards)
        except CompilerMissingError:
            return subprocess.run(command, check=False).returncode
        environment = {**os.environ, **nvml.environment()}
        command = [*command, "--library", str(nvml.library)]
        return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
