"""Which cards reach each other."""

import pytest

from vramline.agent.link_groups import group_linked
from vramline.probes.device import UNSUPPORTED, Answer, DeviceReading, Failed, Link, Vendor


def reading(index: int, links: Answer[tuple[Link, ...]]) -> DeviceReading:
    return DeviceReading(uuid=f"GPU-{index}", index=index, vendor=Vendor.NVIDIA, links=links)


def to(*peers: int, nvlink: Answer[bool] = True) -> tuple[Link, ...]:
    return tuple(Link(peer=f"GPU-{peer}", nvlink=nvlink) for peer in peers)


@pytest.mark.parametrize(
    ("links", "groups"),
    [
        pytest.param([to(1), to(0)], [0, 0], id="a pair"),
        pytest.param([to(1), to(0), to(3), to(2)], [0, 0, 2, 2], id="two pairs"),
        pytest.param([to(1), to(0, 2), to(1)], [0, 0, 0], id="a chain"),
        pytest.param([to(1, nvlink=False), to(0, nvlink=False)], [None, None], id="PCIe alone"),
        pytest.param([to(1, nvlink=Failed("X", "y")), to(0)], [0, 0], id="told by one of them"),
        pytest.param([UNSUPPORTED, UNSUPPORTED], [None, None], id="not told"),
        pytest.param([to(7)], [None], id="a peer that is not there"),
        pytest.param([()], [None], id="a single card"),
    ],
)
def test_cards_that_reach_each_other_are_one_group(
    links: list[Answer[tuple[Link, ...]]], groups: list[int | None]
) -> None:
    readings = {f"GPU-{index}": reading(index, each) for index, each in enumerate(links)}

    found = group_linked(readings)

    assert [found.get(uuid) for uuid in readings] == groups
