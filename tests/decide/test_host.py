"""Host rules of the embedded cluster, as kube-scheduler has them."""

import numpy as np
import pytest

from builders import fleet_of, node
from vramline.decide.host import Rooms, host_refusal, refuse_by_room, refuse_by_wishes
from vramline.model.host import HostColumns
from vramline.model.node import HostRoom, Node, Taint
from vramline.model.pod import HostNeeds, SelectorTerm, Toleration
from vramline.model.reason import FITS, REASON_OF, Reason

TAINTED = node(taints=(Taint("gpu", "yes", "NoSchedule"),))
LABELLED = node(labels={"zone": "a", "cards": "8"})


@pytest.mark.parametrize(
    ("host", "needs", "refusal"),
    [
        pytest.param(node(), HostNeeds(), None, id="an ordinary node takes an ordinary pod"),
        pytest.param(node(ready=False), HostNeeds(), Reason.NODE_NOT_READY, id="not ready"),
        pytest.param(node(cordoned=True), HostNeeds(), Reason.NODE_CORDONED, id="cordoned"),
        pytest.param(
            node(cordoned=True),
            HostNeeds(tolerations=(Toleration("", "Exists", "", ""),)),
            None,
            id="cordoned, but all is tolerated",
        ),
        pytest.param(TAINTED, HostNeeds(), Reason.UNTOLERATED_TAINT, id="a taint nobody tolerates"),
        pytest.param(
            TAINTED,
            HostNeeds(tolerations=(Toleration("gpu", "Equal", "yes", ""),)),
            None,
            id="tolerated by value",
        ),
        pytest.param(
            TAINTED,
            HostNeeds(tolerations=(Toleration("gpu", "Equal", "no", ""),)),
            Reason.UNTOLERATED_TAINT,
            id="another value is not tolerated",
        ),
        pytest.param(
            TAINTED,
            HostNeeds(tolerations=(Toleration("gpu", "Exists", "", "NoExecute"),)),
            Reason.UNTOLERATED_TAINT,
            id="another effect is not tolerated",
        ),
        pytest.param(
            node(taints=(Taint("soft", "", "PreferNoSchedule"),)),
            HostNeeds(),
            None,
            id="a wish is no refusal",
        ),
        pytest.param(LABELLED, HostNeeds(node_selector={"zone": "a"}), None, id="selector matches"),
        pytest.param(
            LABELLED,
            HostNeeds(node_selector={"zone": "b"}),
            Reason.NODE_AFFINITY_MISMATCH,
            id="selector differs",
        ),
    ],
)
def test_host_refusal(host: Node, needs: HostNeeds, refusal: Reason | None) -> None:
    assert host_refusal(host, needs) == refusal


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (SelectorTerm("zone", "In", ("a", "b")), True),
        (SelectorTerm("zone", "NotIn", ("a",)), False),
        (SelectorTerm("rack", "NotIn", ("a",)), True),
        (SelectorTerm("zone", "Exists"), True),
        (SelectorTerm("rack", "Exists"), False),
        (SelectorTerm("rack", "DoesNotExist"), True),
        (SelectorTerm("cards", "Gt", ("7",)), True),
        (SelectorTerm("cards", "Lt", ("8",)), False),
        (SelectorTerm("zone", "Gt", ("7",)), False),
        (SelectorTerm("zone", "Near", ("a",)), False),
    ],
    ids=lambda value: f"{value.key} {value.operator}" if isinstance(value, SelectorTerm) else str(value),
)
def test_affinity_terms(term: SelectorTerm, matches: bool) -> None:
    assert (host_refusal(LABELLED, HostNeeds(affinity=((term,),))) is None) == matches


def test_one_matching_group_of_affinity_terms_is_enough() -> None:
    groups = ((SelectorTerm("zone", "In", ("b",)),), (SelectorTerm("zone", "In", ("a",)),))

    assert host_refusal(LABELLED, HostNeeds(affinity=groups)) is None


def test_affinity_to_a_node_name() -> None:
    needs = HostNeeds(affinity=((),), affinity_names=(("n2",),))

    assert host_refusal(node("n1"), needs) is Reason.NODE_AFFINITY_MISMATCH
    assert host_refusal(node("n2"), needs) is None


@pytest.mark.parametrize(
    ("room", "refusal"),
    [
        (HostRoom(cpu_milli=999, memory_bytes=10, pods=1), Reason.INSUFFICIENT_CPU),
        (HostRoom(cpu_milli=1_000, memory_bytes=9, pods=1), Reason.INSUFFICIENT_MEMORY),
        (HostRoom(cpu_milli=1_000, memory_bytes=10, pods=0), Reason.TOO_MANY_PODS),
        (HostRoom(cpu_milli=1_000, memory_bytes=10, pods=1), None),
        (HostRoom(), None),
    ],
)
def test_room(room: HostRoom, refusal: Reason | None) -> None:
    host = node(host=room)
    fleet = fleet_of(host)
    hosts = HostColumns()
    hosts.set_node(0, host)
    needs = HostNeeds(cpu_milli=1_000, memory_bytes=10)

    codes = refuse_by_room(refuse_by_wishes(fleet, needs), hosts, needs)

    assert REASON_OF.get(int(codes[0])) == refusal


def test_kept_rooms_say_what_looking_at_every_node_says_whatever_came_and_went() -> None:
    chance = np.random.default_rng(3)
    hosts, rooms = HostColumns(), Rooms()
    for number in range(40):
        room = HostRoom(cpu_milli=4_000, memory_bytes=100, pods=5)
        hosts.set_node(number, node(host=room))
    wishes = [np.zeros(40, dtype=np.int8), (np.arange(40) % 7 == 0).astype(np.int8)]
    asked = [HostNeeds(cpu_milli=cpu, memory_bytes=memory) for cpu in (500, 2_000) for memory in (5, 60)]
    for turn in range(300):
        needs, codes = asked[int(chance.integers(4))], wishes[turn % 2]

        refused = rooms.refuse(codes, hosts, needs)

        assert refused.tolist() == refuse_by_room(codes, hosts, needs).tolist()
        refused[:] = 1  # whoever was told may write on it
        for _ in range(int(chance.integers(3))):
            change = hosts.take if chance.random() < 0.7 else hosts.give_back
            change(int(chance.integers(40)), needs)


def test_what_a_pod_took_comes_back_when_it_leaves() -> None:
    hosts = HostColumns()
    hosts.set_node(40, node(host=HostRoom(cpu_milli=2_000, memory_bytes=100, pods=2)))
    before = (hosts.cpu_milli.copy(), hosts.memory_bytes.copy(), hosts.pods.copy())
    needs = HostNeeds(cpu_milli=1_500, memory_bytes=60)
    hosts.take(40, needs)

    assert hosts.cpu_milli[40] == 500
    hosts.give_back(40, needs)
    assert all(
        np.array_equal(old, new)
        for old, new in zip(before, (hosts.cpu_milli, hosts.memory_bytes, hosts.pods), strict=True)
    )


def test_a_number_without_a_node_is_no_candidate() -> None:
    fleet = fleet_of(node("n1"), node("n2"))
    fleet.remove_node("n1")

    assert [REASON_OF.get(int(code)) for code in refuse_by_wishes(fleet, HostNeeds())] == [
        Reason.NOT_A_CANDIDATE,
        None,
    ]
    assert FITS == 0
