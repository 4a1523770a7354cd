"""Where a GPU takes from the memory of its machine, no GPU pod over-promises it, whoever comes and goes.

Pods without a GPU come as kube-scheduler lets them in, which counts requests and knows nothing of claims.
"""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from vramline.model.ask import Ask, MibSize
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import HostRoom, Node
from vramline.model.observation import Observation, Unknown
from vramline.model.pod import HostNeeds, Pod
from vramline.model.rules import Rules
from vramline.simulate.cluster import EmbeddedCluster
from vramline.simulate.outcome import Status
from vramline.units import Mib

TOTAL, RESERVED, MARGIN, ALLOCATABLE = 10_000, 500, 100, 9_800
LIMIT = TOTAL - RESERVED - MARGIN
SIZES = st.integers(0, 6_000)
PODS = st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=12)
"""What each asks of the GPU (0: it wants none) and requests as memory, in MiB."""


def board() -> EmbeddedCluster:
    cluster = EmbeddedCluster(Rules(), clock=lambda: 100.0, margin=Mib(MARGIN))
    card = PhysicalGpu(uuid="GPU-1", node="n", total=Mib(TOTAL), reserved=Mib(RESERVED), unified=True)
    cluster.set_node(Node(name="n", gpus=(card,), host=HostRoom(memory_bytes=ALLOCATABLE << 20)))
    return cluster


def pod_of(number: int, ask: int, memory: int) -> Pod:
    key, uid = f"ns/p{number}", f"u{number}"
    wanted = Ask(pod=key, pod_uid=uid, gpus=1, size=MibSize(Mib(ask))) if ask else None
    needs = HostNeeds(memory_bytes=memory << 20)
    return Pod(namespace="ns", name=f"p{number}", uid=uid, ask=wanted, host=needs)


@given(PODS, st.randoms(use_true_random=False))
def test_a_gpu_pod_is_bound_exactly_if_the_greater_of_ask_and_request_is_left(
    pods: list[tuple[int, int]], random: Random
) -> None:
    cluster = board()
    there: dict[str, tuple[int, int]] = {}
    for number, (ask, memory) in enumerate(pods):
        cluster.add_pod(pod_of(number, ask, memory))
        bound = cluster.place(f"u{number}", why=False).status is Status.BOUND
        held = sum(max(each) for each in there.values())
        room = sum(requested for _, requested in there.values()) + memory <= ALLOCATABLE
        assert bound == (room and (not ask or max(ask, memory) <= LIMIT - held))
        if bound:
            there[f"u{number}"] = (ask, memory)
        if there and random.random() < 0.3:
            gone = random.choice(sorted(there))
            cluster.delete_pod(gone)
            cluster.end_pod(gone)
            cluster.fleet.remove_claims(gone)
            del there[gone]
        account = cluster.fleet.account("GPU-1")
        assert account.held == account.claimed == sum(max(each) for each in there.values())
        assert account.requested == sum(max(0, memory - ask) for ask, memory in there.values())


@given(PODS, st.integers(0, TOTAL))
def test_what_is_free_never_exceeds_what_the_books_and_the_machine_leave(
    pods: list[tuple[int, int]], used: int
) -> None:
    cluster = board()
    for number, (ask, memory) in enumerate(pods):
        cluster.add_pod(pod_of(number, ask, memory))
        if cluster.place(f"u{number}", why=False).status is Status.BOUND:
            cluster.start_pod(f"u{number}")
    books = cluster.fleet.account("GPU-1").free_by_books

    cluster.observe("GPU-1", Observation(at=200.0, used=Mib(used)))

    account = cluster.fleet.account("GPU-1")
    assert account.free_by_books == books
    assert account.free == min(books, LIMIT - used)
    assert not isinstance(account.unmanaged, Unknown)
    assert account.usable - account.margin - account.held - account.unmanaged == account.free
