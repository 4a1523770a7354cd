"""What is installed, rendered by `vramline install` and by Helm."""

import contextlib
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from house.tree import SOURCE
from vramline.cli.main import main

__all__ = ["CHART", "Object", "find_helm", "find_object", "pod_specs", "render_with_helm", "rendered"]

CHART = SOURCE / "install"

Object = dict[str, Any]


def rendered(*options: str) -> list[Object]:
    """Return the objects that `vramline install` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["install", *options]) == 0
    return list(yaml.safe_load_all(printed.getvalue()))


def find_object(objects: list[Object], kind: str, name: str) -> Object:
    """Return the one object of this kind and name."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_specs(objects: list[Object]) -> dict[str, Object]:
    """Return the pod templates by the name of their workload."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] in {"Deployment", "DaemonSet"}
    }


def find_helm() -> str:
    """Return the path of helm; tests that need it are skipped where there is none."""
    beside = Path(sys.executable).parent / "helm"
    found = str(beside) if beside.is_file() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm: its package has no build for this machine, and none is in the path")
    return found


def render_with_helm(*options: str, namespace: str = "vramline-system") -> list[Object]:
    """Return the objects that `helm template` prints."""
    command = [find_helm(), "template", "vramline", str(CHART), "--namespace", namespace, "--include-crds"]
    answer = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return [each for each in yaml.safe_load_all(answer.stdout) if each]
