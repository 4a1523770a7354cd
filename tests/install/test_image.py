"""The Dockerfile: what can be said of it without a container runtime."""

import json
import re
import shlex

import pytest

from house.tree import ROOT
from install.rendered import pod_specs, rendered

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
LINES = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]


def all_of(instruction: str) -> list[str]:
    return [rest for name, rest in LINES if name == instruction]


def test_nothing_but_python_is_a_base() -> None:
    assert {base.partition(" ")[0] for base in all_of("FROM")} == {"python:3.13-slim"}


def test_it_runs_as_the_user_of_the_pods() -> None:
    context = pod_specs(rendered())["vramline-scheduler"]["securityContext"]

    assert all_of("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]


def test_arguments_of_the_pods_are_arguments_of_the_program() -> None:
    assert [json.loads(each) for each in all_of("ENTRYPOINT")] == [["vramline"]]


def test_what_is_copied_is_not_ignored() -> None:
    sent = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for each in all_of("COPY")
        if not each.startswith("--from")
        for source in shlex.split(each)[:-1]
    }

    assert copied == sent
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize(
    "command", re.findall(r"pip (?:download|install|wheel) [^&]*", TEXT), ids=lambda text: text.strip()
)
def test_packages_are_checked_against_their_hashes(command: str) -> None:
    assert "--require-hashes" in command or "--no-index" in command
