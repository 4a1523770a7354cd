"""What a Binding tells containers about their cards."""

import pytest

from builders import ask, fleet_of, gpu, node
from vramline.model.ask import MibSize, ShareSize, Size, UnsizedSize, WholeSize
from vramline.model.decision import Placement
from vramline.model.pod import GpuShare, Pod
from vramline.scheduler.telling import Telling
from vramline.units import Mib

FLEET = fleet_of(node("n1", gpu("GPU-a", total=80_000), gpu("GPU-b", total=80_000)))


def tell(size: Size, *uuids: str, mib: int = 8_000, names: str = "uuid", **renamed: str) -> dict[str, str]:
    pod = Pod(uid="u", namespace="ns", name="new", ask=ask(size, gpus=len(uuids)))
    placement = Placement(node="n1", gpus=tuple(GpuShare(uuid, Mib(mib)) for uuid in uuids))
    known = {name.replace("_", "-"): uuid for name, uuid in renamed.items()}
    return Telling(device_names=names).about(FLEET, pod, placement, known)


def test_cards_are_told_by_uuid() -> None:
    assert tell(WholeSize(), "GPU-a", "GPU-b") == {"vramline.io/visible-devices": "GPU-a,GPU-b"}


def test_cards_are_told_by_the_kind_under_which_the_runtime_knows_them() -> None:
    told = tell(WholeSize(), "GPU-a", "GPU-b", names="example.com/gpu")

    assert told == {"vramline.io/visible-devices": "example.com/gpu=GPU-a,example.com/gpu=GPU-b"}


def test_a_card_that_was_placed_under_another_name_is_told_by_its_own() -> None:
    assert tell(WholeSize(), "GPU-a", GPU_a="GPU-real")["vramline.io/visible-devices"] == "GPU-real"


@pytest.mark.parametrize(
    ("size", "mib", "portion"),
    [
        (MibSize(Mib(8_000)), 8_000, "0.10"),
        (MibSize(Mib(8_001)), 8_001, "0.11"),
        (MibSize(Mib(80_000)), 80_000, "1.00"),
        (ShareSize(1, 2), 39_950, "0.5"),
        (ShareSize(1, 3), 26_633, "0.333333"),
    ],
    ids=["a tenth", "a little more", "all of it", "a half", "a third"],
)
def test_a_share_is_told_as_kai_tells_it(size: Size, mib: int, portion: str) -> None:
    assert tell(size, "GPU-a", mib=mib)["vramline.io/gpu-portion"] == portion


@pytest.mark.parametrize("size", [WholeSize(), UnsizedSize()], ids=["whole", "unsized"])
def test_whoever_asked_for_no_share_is_told_of_none(size: Size) -> None:
    assert "vramline.io/gpu-portion" not in tell(size, "GPU-a")
