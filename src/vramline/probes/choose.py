"""Which cards are in this machine, and who can read them.

NVIDIA's are read by NVML, or by nvidia-smi where that is all there is. Other makers' probes are found by
entry points of the group `vramline.probes`: the name is the vendor, the object is called with `ProbeOptions`
and returns a `DeviceProbe`. A maker whose cards are there and whom nobody can read gets a probe that says so.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from vramline.probes.device import DeviceProbe, DeviceReading, HealthEvent, ProbeError, Vendor
from vramline.probes.faults import probe_error
from vramline.probes.nvidia import NvidiaProbe
from vramline.probes.options import ProbeOptions
from vramline.probes.smi import SmiProbe

__all__ = [
    "GROUP",
    "FirstThatOpens",
    "NobodyReads",
    "Opened",
    "choose_probes",
    "count_cards",
    "has_nvidia",
    "open_probes",
]

GROUP = "vramline.probes"
"""Entry points of this group add vendors."""

_PCI_VENDORS = {
    "0x10de": Vendor.NVIDIA,
    "0x1002": Vendor.AMD,
    "0x8086": Vendor.INTEL,
    "0x1d94": Vendor.HYGON,
    "0xcabc": Vendor.CAMBRICON,
    "0x1e3e": Vendor.ILUVATAR,
    "0x1ed5": Vendor.MTHREADS,
    "0x1e36": Vendor.ENFLAME,
    "0x19e5": Vendor.ASCEND,
    "0x1d22": Vendor.KUNLUN,
    "0x1d0f": Vendor.NEURON,
    "0x9999": Vendor.METAX,
}
_CARD_CLASSES = ("0x03", "0x12", "0x0b40")
"""Display controllers, processing accelerators, co-processors."""
_NEURON_CLASS, _NEURON_DEVICES = "0x08", "0x7"
"""Amazon's accelerators are system peripherals; their device numbers begin with 7."""
_INTEGRATED = "0000:00:02."
"""Where Intel's graphics without memory of their own are, in nearly every machine of theirs."""
_NVIDIA_FILES = ("dev/nvidiactl", "dev/nvgpu", "dev/nvhost-gpu", "etc/nv_tegra_release")


class NobodyReads:
    """Stands for the cards of a maker that Vramline cannot read: opening it says so."""

    def __init__(self, vendor: str, cards: int, why: str = "") -> None:
        self.vendor = vendor
        self._cards = cards
        self._why = why

    @property
    def source(self) -> str:
        """Return that there is none."""
        return "not implemented"

    def open(self) -> None:
        """Raise `ProbeError`, always."""
        detail = f": {self._why}" if self._why else ""
        message = f"{self.vendor}: reading its {self._cards} card(s) is not implemented{detail}"
        raise probe_error(message, "NOT_IMPLEMENTED")

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        """Raise `ProbeError`, always."""
        del uuids
        self.open()
        return []

    def events(self, timeout_s: float) -> list[HealthEvent]:
        """Raise `ProbeError`, always."""
        del timeout_s
        self.open()
        return []

    def close(self) -> None:
        """There is nothing to close."""


class FirstThatOpens:
    """Several ways to the same cards, best first; `DeviceProbe` has the contract."""

    def __init__(self, *ways: DeviceProbe) -> None:
        self._ways = ways
        self._open: DeviceProbe = ways[0]
        self.vendor = ways[0].vendor

    @property
    def source(self) -> str:
        """Return that of the way taken."""
        return self._open.source

    def open(self) -> None:
        """Open the first that can be opened. Raises the first one's `ProbeError`: that is the one to mend."""
        errors = []
        for way in self._ways:
            try:
                way.open()
            except ProbeError as error:
                errors.append(error)
            else:
                self._open = way
                return
        raise errors[0]

    def read(self, uuids: Collection[str] | None = None) -> list[DeviceReading]:
        """Read by the way taken."""
        return self._open.read(uuids)

    def events(self, timeout_s: float) -> list[HealthEvent]:
        """Wait by the way taken."""
        return self._open.events(timeout_s)

    def close(self) -> None:
        """Close the way taken."""
        self._open.close()


@dataclass(frozen=True, slots=True)
class Opened:
    """What can be read on this machine, and what cannot."""

    probes: tuple[DeviceProbe, ...]
    errors: tuple[ProbeError, ...]


def choose_probes(
    options: ProbeOptions, plugins: Iterable[EntryPoint] | None = None
) -> tuple[DeviceProbe, ...]:
    """Return a probe for every maker whose cards are here, not yet opened.

    Where no card is seen at all there is NVIDIA's: its boards need not be on a PCI bus, and its error says
    what was looked for. Keep the probes, and open again those that did not open.
    """
    cards = count_cards(options.root)
    makers = {each.name: each for each in (entry_points(group=GROUP) if plugins is None else plugins)}
    chosen: list[DeviceProbe] = []
    if has_nvidia(options, cards) or not cards:
        chosen.append(FirstThatOpens(NvidiaProbe(options), SmiProbe(options)))
    for vendor, count in sorted(cards.items()):
        if vendor != Vendor.NVIDIA:
            chosen.append(_make(vendor, count, makers.get(vendor), options))
    return tuple(chosen)


def open_probes(options: ProbeOptions) -> Opened:
    """Open whatever is there, and say what is not."""
    probes, errors = [], []
    for probe in choose_probes(options):
        try:
            probe.open()
        except ProbeError as error:
            errors.append(error)
        else:
            probes.append(probe)
    return Opened(tuple(probes), tuple(errors))


def count_cards(root: Path) -> Counter[str]:
    """Return how many cards of each maker are on the PCI bus."""
    devices = (root / "sys/bus/pci/devices").glob("*")
    return Counter(vendor for device in devices if (vendor := _maker_of(device)) is not None)


def _maker_of(device: Path) -> str | None:
    """Return who made a card; None: it is no card that computes."""
    vendor, kind = _PCI_VENDORS.get(_word(device / "vendor")), _word(device / "class")
    if vendor is Vendor.NEURON:
        number = _word(device / "device")
        is_card = kind.startswith(_NEURON_CLASS) and number.startswith(_NEURON_DEVICES)
    elif vendor is Vendor.INTEL and device.name.startswith(_INTEGRATED):
        is_card = False
    else:
        is_card = kind.startswith(_CARD_CLASSES)
    return vendor if is_card else None


def has_nvidia(options: ProbeOptions, cards: Counter[str]) -> bool:
    """Whether anything says that there is a GPU of NVIDIA's here."""
    seen = any((options.root / name).exists() for name in _NVIDIA_FILES)
    return options.library is not None or Vendor.NVIDIA in cards or seen


def _make(vendor: str, cards: int, plugin: EntryPoint | None, options: ProbeOptions) -> DeviceProbe:
    if plugin is None:
        return NobodyReads(vendor, cards)
    try:
        make: Callable[[ProbeOptions], DeviceProbe] = plugin.load()
    except (ImportError, AttributeError) as error:
        return NobodyReads(vendor, cards, f"{plugin.value} cannot be imported: {error}")
    return make(options)


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
