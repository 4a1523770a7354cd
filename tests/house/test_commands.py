"""Every command is documented, has examples, and explains its options."""

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from house.tree import ROOT
from vramline.cli.main import COMMANDS, Command


def leaves(entry: Command) -> Iterator[tuple[str, Any]]:
    """The command of an entry, or the commands of its group, by full name."""
    found = get_command(importlib.import_module(entry.module).app)
    if isinstance(found, TyperGroup):
        found = found.commands.get(entry.name, found)
    if isinstance(found, TyperGroup):
        yield from ((f"vramline {entry.name} {name}", command) for name, command in found.commands.items())
    else:
        yield f"vramline {entry.name}", found


def section(name: str) -> str:
    """What the manual says about a command."""
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    return manual.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("entry", COMMANDS, ids=[entry.name for entry in COMMANDS])
def test_every_command_and_option_is_in_the_manual(entry: Command) -> None:
    missing = [
        f"{name} {option}"
        for name, command in leaves(entry)
        for option in [
            max(option.opts, key=len) for option in command.params if option.param_type_name == "option"
        ]
        if not re.search(rf"`{option}[ `]", section(name))
    ]

    assert missing == []
    assert all(section(name) for name, _ in leaves(entry))


@pytest.mark.parametrize("entry", COMMANDS, ids=[entry.name for entry in COMMANDS])
def test_every_command_has_examples_that_call_it(entry: Command) -> None:
    without = [name for name, command in leaves(entry) if f" {name}" not in f" {command.epilog or ''}"]

    assert without == []


@pytest.mark.parametrize("entry", COMMANDS, ids=[entry.name for entry in COMMANDS])
def test_every_option_is_explained(entry: Command) -> None:
    silent = [
        f"{name} {option.opts[0]}"
        for name, command in leaves(entry)
        for option in command.params
        if option.param_type_name == "option" and not option.help
    ]

    assert silent == []


@pytest.mark.parametrize("entry", COMMANDS, ids=[entry.name for entry in COMMANDS])
def test_every_option_of_every_command_is_its_own(entry: Command) -> None:
    offered = [option.name for _, command in leaves(entry) for option in command.params]

    assert "install_completion" not in offered
