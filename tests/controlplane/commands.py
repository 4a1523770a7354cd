"""Where the control plane's commands come from: a folder of the user's, a cache, or a build from source.

Binaries are built once per machine from the Go modules pinned beside this file, into a cache outside the
tree. `python -m controlplane.commands` builds what is missing and prints the folder.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.sources import (
    CommandsMissingError,
    cache_folder,
    prepare_sources,
    run_go,
    wanted_version,
)

__all__ = ["NAMES", "Commands", "CommandsMissingError", "find_commands", "obtain_commands"]

NAMES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")


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
    version = wanted_version()
    folder = cache_folder(version)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            if not (folder / name).is_file():
                _build(name, version, folder)
    return Commands(folder)


def _folders() -> list[Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    return [*([Path(given)] if given else []), cache_folder(wanted_version())]


def _build(name: str, version: str, folder: Path) -> None:
    """Build one command into `folder`, whole or not at all. etcd is the same for every version."""
    print(f"building {name} for Kubernetes {version} (once per machine) …", file=sys.stderr, flush=True)  # noqa: T201
    started = time.monotonic()
    unfinished = folder / f".{name}.{os.getpid()}"
    build = ["build", "-mod=readonly", "-trimpath", "-o", str(unfinished), "-ldflags"]
    try:
        if name == "etcd":
            run_go(*build, "-s -w", "./etcd")
        else:
            sources = prepare_sources(version, folder / "sources")
            run_go(*build, _stamp(version), f"k8s.io/kubernetes/cmd/{name}", folder=sources)
    except CommandsMissingError as error:
        unfinished.unlink(missing_ok=True)
        raise CommandsMissingError(f"building {name} failed: {error}") from error
    unfinished.rename(folder / name)
    print(f"  {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)  # noqa: T201


def _stamp(version: str) -> str:
    _, minor, _ = version.split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in values.items())])


if __name__ == "__main__":
    try:
        print(obtain_commands().folder)  # noqa: T201
    except CommandsMissingError as error:
        sys.exit(str(error))
