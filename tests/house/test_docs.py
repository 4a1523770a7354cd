"""Documentation is held to the code: what exists is described, and what is described exists."""

import re
from collections.abc import Iterable

import msgspec
import pytest

from house.tree import ROOT, SOURCE, name_of
from vramline.model.reason import Reason, WarningCode
from vramline.settings import SETTINGS, Settings

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#([^)]*))?\)")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return [line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")]


def anchors(text: str) -> Iterable[str]:
    return (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(text))


@pytest.mark.parametrize("code", [*Reason, *WarningCode])
def test_every_reason_and_warning_has_its_entry(code: str) -> None:
    assert headings(read("reasons.md")).count(code) == 1


def test_every_entry_is_a_reason_or_warning() -> None:
    entries = [line.removeprefix("## ") for line in read("reasons.md").splitlines() if line.startswith("## ")]

    assert set(entries) == {*Reason, *WarningCode}


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_every_setting_is_described(setting: object) -> None:
    name, variable, option = (getattr(setting, part) for part in ("name", "variable", "option"))

    assert f"| `{name}` (`{variable}`, `{option}`) |" in read("settings.md")


def test_every_setting_has_a_docstring_with_its_default() -> None:
    source = (SOURCE / "settings" / "schema.py").read_text(encoding="utf-8")
    described = re.findall(r'^    (\w+): .* = .*\n    """((?:[^"]|\n)+)"""', source, re.MULTILINE)
    with_default = {name for name, text in described if "Default" in text}

    assert {field.name for field in msgspec.structs.fields(Settings)} - {"origins"} <= with_default


@pytest.mark.parametrize("room", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_every_room_has_its_paragraph(room: str) -> None:
    assert f"**{room}**" in read("architecture.md")


def test_links_lead_somewhere() -> None:
    broken = []
    for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]:
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            aim = page.parent / target
            if not aim.exists() or (anchor and anchor not in anchors(aim.read_text(encoding="utf-8"))):
                broken.append(f"{name_of(page)}: {target}#{anchor}")

    assert broken == []
