"""What is left of hosts, whatever pods say that they need."""

import pytest

from vramline.model.host import HostColumns
from vramline.model.node import HostRoom, Node
from vramline.model.pod import HostNeeds

ABSURD = HostNeeds(cpu_milli=2**50, memory_bytes=2**50)
NODE = Node(name="n1", host=HostRoom(cpu_milli=64_000, memory_bytes=2**38, pods=110))


def test_more_than_the_columns_could_hold_may_be_taken_of_a_node() -> None:
    hosts = HostColumns()

    hosts.set_node(0, NODE, [ABSURD] * 20_000)
    hosts.take(0, ABSURD)

    assert hosts.cpu_milli[0] < 0
    assert hosts.memory_bytes[0] < 0
    assert hosts.pods[0] == 110 - 20_001


@pytest.mark.parametrize("host", [NODE.host, HostRoom()], ids=["bounded", "no limits"])
def test_what_was_taken_comes_back(host: HostRoom) -> None:
    hosts = HostColumns()
    hosts.set_node(0, Node(name="n1", host=host))
    before = hosts.left[:, 0].tolist()

    for _ in range(3):
        hosts.take(0, ABSURD)
    for _ in range(3):
        hosts.give_back(0, ABSURD)

    assert hosts.left[:, 0].tolist() == before
