"""Where the control plane's commands come from: a folder of the user's, a cache, or a build from source.

Binaries are built once per machine from the Go modules pinned beside this file, into a cache outside the
tree. `python -m controlplane.commands` builds what is missing and prints the folder.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NAMES", "Commands", "CommandsMissingError", "find_commands", "obtain_commands"]

VERSION = "v1.35.8"
NAMES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
_SOURCES = Path(__file__).parent / "binaries"


class CommandsMissingError(Exception):
    """The commands are not on this machine, and why they could not be made."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Paths of the control plane's commands."""

    folder: Path

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


def find_commands(names: Sequence[str] = NAMES) -> Commands:
    """Return commands that are there already; never builds."""
    for folder in _folders():
        if all((folder / name).is_file() for name in names):
            return Commands(folder)
    raise CommandsMissingError(
        f"no control plane: {', '.join(names)} in none of {', '.join(map(str, _folders()))};"
        " `make controlplane` builds them (needs Go, takes about ten minutes once)"
    )


def obtain_commands(names: Sequence[str] = NAMES) -> Commands:
    """Return the commands, building what is missing. Several callers at once build only once."""
    try:
        return find_commands(names)
    except CommandsMissingError:
        if shutil.which("go") is None:
            raise
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            if not (folder / name).is_file():
                _build(name, folder)
    return Commands(folder)


def _folders() -> list[Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    return [*([Path(given)] if given else []), _cache()]


def _cache() -> Path:
    """Where builds of these sources are kept.

    The name follows what is pinned by hand, not the modules that come with it, so that one more command does
    not cost the others their builds.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    lines = (_SOURCES / "go.mod").read_text().splitlines()
    pinned = "\n".join(line for line in lines if not line.endswith("// indirect"))
    digest = hashlib.sha256(pinned.encode()).hexdigest()[:12]
    return root / "vramline" / f"controlplane-{VERSION}-{digest}"


def _build(name: str, folder: Path) -> None:
    """Build one command into `folder`, whole or not at all."""
    print(f"building {name} {VERSION} (once per machine) …", file=sys.stderr, flush=True)  # noqa: T201
    started = time.monotonic()
    unfinished = folder / f".{name}.{os.getpid()}"
    package = "./etcd" if name == "etcd" else f"k8s.io/kubernetes/cmd/{name}"
    stamp = [
        f"-X k8s.io/component-base/version.gitVersion={VERSION}",
        f"-X k8s.io/component-base/version.gitMajor={VERSION[1:].split('.', maxsplit=1)[0]}",
        f"-X k8s.io/component-base/version.gitMinor={VERSION.split('.')[1]}",
        f"-X k8s.io/client-go/pkg/version.gitVersion={VERSION}",
    ]
    flags = " ".join(["-s", "-w", *([] if name == "etcd" else stamp)])
    result = subprocess.run(
        ["go", "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", str(unfinished), package],
        cwd=_SOURCES,
        env={**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise CommandsMissingError(f"building {name} failed: {result.stderr.strip()[-2000:]}")
    unfinished.rename(folder / name)
    print(f"  {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    try:
        print(obtain_commands().folder)  # noqa: T201
    except CommandsMissingError as error:
        sys.exit(str(error))
