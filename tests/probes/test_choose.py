"""Which cards are there, and who reads them."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fakenvml import Card
from house.tree import ROOT
from probes.machines import LIBRARY, Machine
from vramline.probes.choose import GROUP, choose_probes, count_cards, open_probes
from vramline.probes.device import ProbeError, Vendor
from vramline.probes.options import ProbeOptions

LISTED = {
    "hygon": "0x1d94",
    "cambricon": "0xcabc",
    "iluvatar": "0x1e3e",
    "mthreads": "0x1ed5",
    "enflame": "0x1e36",
    "ascend": "0x19e5",
    "kunlun": "0x1d22",
    "metax": "0x9999",
    "intel": "0x8086",
}
"""Makers that nobody reads yet, by the number of their PCI devices; Amazon's have a class of their own."""


def plug_in(root: Path, address: str, vendor: str, kind: str = "0x120000", device: str = "0x0001") -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, value in {"vendor": vendor, "class": kind, "device": device}.items():
        (folder / name).write_text(f"{value}\n", encoding="ascii")


def refusal(root: Path) -> ProbeError:
    (probe,) = choose_probes(ProbeOptions(root=root), plugins=())
    with pytest.raises(ProbeError) as caught:
        probe.open()
    return caught.value


@pytest.mark.parametrize(("vendor", "number"), LISTED.items(), ids=list(LISTED))
def test_cards_that_nobody_reads_are_named_with_their_maker(vendor: str, number: str, tmp_path: Path) -> None:
    plug_in(tmp_path, "0000:3b:00.0", number)
    plug_in(tmp_path, "0000:4b:00.0", number)

    error = refusal(tmp_path)

    assert error.code == "NOT_IMPLEMENTED"
    assert str(error).startswith(f"{vendor}: reading its 2 card(s) is not implemented")
    assert "placed by the books" in str(error)


def test_amazons_accelerators_are_system_peripherals(tmp_path: Path) -> None:
    plug_in(tmp_path, "0000:00:1e.0", "0x1d0f", kind="0x088000", device="0x7164")
    plug_in(tmp_path, "0000:00:05.0", "0x1d0f", kind="0x020000", device="0xec20")

    assert count_cards(tmp_path) == {Vendor.NEURON: 1}
    assert str(refusal(tmp_path)).startswith("neuron: reading its 1 card(s) is not implemented")


def test_every_maker_is_known_by_a_number_or_is_nvidia_or_amd() -> None:
    assert {*LISTED, "nvidia", "amd", "neuron"} == set(Vendor)


@pytest.mark.parametrize(
    ("address", "vendor", "kind"),
    [
        pytest.param("0000:00:02.0", "0x8086", "0x030000", id="graphics inside a processor"),
        pytest.param("0000:3b:00.1", "0x10de", "0x040300", id="the sound of a card"),
        pytest.param("0000:c1:00.0", "0x10de", "0x068000", id="an NVSwitch"),
        pytest.param("0000:02:00.0", "0x1a03", "0x030000", id="a server's console"),
        pytest.param("0000:03:00.0", "0x19e5", "0x020000", id="a network card of a maker of accelerators"),
    ],
)
def test_what_is_no_card(address: str, vendor: str, kind: str, tmp_path: Path) -> None:
    plug_in(tmp_path, address, vendor, kind)

    assert count_cards(tmp_path) == {}


def test_every_maker_on_a_machine_gets_a_probe(tmp_path: Path) -> None:
    plug_in(tmp_path, "0000:3b:00.0", "0x10de", "0x030200")
    plug_in(tmp_path, "0000:4b:00.0", "0x1002", "0x120000")
    plug_in(tmp_path, "0000:5b:00.0", "0x9999")

    probes = choose_probes(
        ProbeOptions(root=tmp_path), plugins=[entry_point("amd", "vramline.probes.amd:AmdProbe")]
    )

    assert [probe.vendor for probe in probes] == ["nvidia", "amd", "metax"]
    assert probes[1].source == "amdsmi"


def test_a_probe_of_somebody_else_is_taken(tmp_path: Path) -> None:
    plug_in(tmp_path, "0000:5b:00.0", "0x9999")

    (probe,) = choose_probes(
        ProbeOptions(root=tmp_path), plugins=[entry_point("metax", "vramline.probes.smi:SmiProbe")]
    )

    assert probe.source.startswith("nvidia-smi")


def test_a_probe_that_cannot_be_imported_says_so(tmp_path: Path) -> None:
    plug_in(tmp_path, "0000:5b:00.0", "0x9999")
    (probe,) = choose_probes(ProbeOptions(root=tmp_path), plugins=[entry_point("metax", "nowhere:Probe")])

    with pytest.raises(ProbeError, match="nowhere:Probe cannot be imported"):
        probe.open()


def test_a_machine_without_any_card_says_what_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # whoever runs this may have an nvidia-smi
    opened = open_probes(ProbeOptions(root=tmp_path))

    assert opened.probes == ()
    assert [error.code for error in opened.errors] == ["LIBRARY_NOT_FOUND"]
    assert "unable to initialize NVML" in str(opened.errors[0])


def test_what_is_there_is_opened(machine: Machine) -> None:
    machine.nvml.set(Card("GPU-1", used=5))
    plug_in(machine.root, "0000:5b:00.0", "0x9999")
    plug_in(machine.root, "0000:3b:00.0", "0x10de", "0x030200")

    opened = open_probes(machine.options())

    assert [(probe.vendor, probe.source) for probe in opened.probes] == [
        ("nvidia", f"NVML, {machine.root / LIBRARY} (standard)")
    ]
    assert [card.used for card in opened.probes[0].read()] == [5]
    assert [error.code for error in opened.errors] == ["NOT_IMPLEMENTED"]
    opened.probes[0].close()


def test_where_the_library_cannot_be_loaded_nvidia_smi_is_asked(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.root / LIBRARY).unlink()
    line = "0, GPU-1, NVIDIA L4, 00000000:3B:00.0, 23034, 100, 450, 0, 40, [N/A], 0, 0"
    script = tmp_path / "nvidia-smi"
    script.write_text(f'#!/bin/sh\ncase "$1" in --query-gpu=*) echo "{line}" ;; esac\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    (probe,) = open_probes(machine.options()).probes

    assert probe.source == f"nvidia-smi, {script}"
    assert [(card.uuid, card.used) for card in probe.read()] == [("GPU-1", 100)]


def test_the_package_offers_its_own_probes_by_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    offered = project["entry-points"][GROUP]
    assert {name: entry_point(name, value).load().vendor for name, value in offered.items()} == {"amd": "amd"}
    assert set(project["optional-dependencies"]) == set(offered)


def entry_point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=GROUP)
