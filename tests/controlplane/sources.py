"""Which Kubernetes the commands are built from: the version pinned beside this file, or another.

`K8S=1.30.14` in the environment asks for another. Its modules are put together in the cache as Kubernetes
itself pins them, and checked by Go's public checksum database; those of the pinned version are in the tree.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = [
    "CommandsMissingError",
    "cache_folder",
    "prepare_sources",
    "run_go",
    "wanted_minor",
    "wanted_version",
]

PINNED = "v1.35.8"
PINNED_SOURCES = Path(__file__).parent / "binaries"
_LINKED = re.compile(r"^\s*(k8s\.io/[\w.-]+) => \./staging/", re.MULTILINE)
_GO = re.compile(r"^go (\S+)$", re.MULTILINE)


class CommandsMissingError(Exception):
    """The commands are not on this machine, and why they could not be made."""


def wanted_version() -> str:
    """Return the version that this run is about."""
    asked = os.environ.get("K8S") or PINNED
    version = asked if asked.startswith("v") else f"v{asked}"
    if not re.fullmatch(r"v1\.\d+\.\d+", version):
        raise CommandsMissingError(f"K8S={asked!r} is no version of Kubernetes; a version is like 1.30.14")
    return version


def wanted_minor() -> int:
    """Return the minor part of that version: 30 of v1.30.14."""
    return int(wanted_version().split(".")[1])


def cache_folder(version: str) -> Path:
    """Return where builds of a version are kept, outside the tree."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vramline"
    return root / f"controlplane-{version}{_pins() if version == PINNED else ''}"


def prepare_sources(version: str, folder: Path) -> Path:
    """Return where this version can be built: the pinned one in the tree, another in `folder`, made once."""
    if version == PINNED:
        return PINNED_SOURCES
    if not (folder / "go.sum").exists():
        folder.mkdir(exist_ok=True)
        shutil.copy(PINNED_SOURCES / "commands.go", folder)
        (folder / "go.mod").write_text(_module(version))
        run_go("mod", "tidy", folder=folder)
    return folder


def run_go(*arguments: str, folder: Path = PINNED_SOURCES) -> str:
    """Run Go with the toolchain that is installed, and return what it writes."""
    result = subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env={**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise CommandsMissingError(f"go {arguments[0]} failed: {result.stderr.strip()[-2000:]}")
    return result.stdout


def _pins() -> str:
    """Name what is pinned by hand, not what comes with it: one more command costs the others no build."""
    lines = (PINNED_SOURCES / "go.mod").read_text().splitlines()
    pinned = "\n".join(line for line in lines if not line.endswith("// indirect"))
    return f"-{hashlib.sha256(pinned.encode()).hexdigest()[:12]}"


def _module(version: str) -> str:
    """Kubernetes' module names its parts by folders of its repository; published, they are modules v0.…."""
    found = json.loads(run_go("mod", "download", "-json", f"k8s.io/kubernetes@{version}"))
    own = Path(found["GoMod"]).read_text()
    language = _GO.search(own)
    parts = sorted(set(_LINKED.findall(own)))
    return "\n".join(
        [
            "module vramline.io/tests/controlplane",
            f"go {language[1] if language else '1.22.0'}",
            f"require k8s.io/kubernetes {version}",
            *(f"replace {part} => {part} v0{version.removeprefix('v1')}" for part in parts),
            "",
        ]
    )
