import msgspec
import pytest

import builders
from vramline.model.ask import Ask, PolicyName, RealtimeMode, ShareSize, UnsizedSize, WholeSize
from vramline.model.gpu import Health
from vramline.model.node import HostRoom, InventorySource, Node, Taint
from vramline.model.observation import NOT_REPORTED, Observation
from vramline.model.pod import Allocation, GpuShare, HostNeeds, Pod, PodPhase, SelectorTerm, Toleration
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.kubernetes import NodeObject, PodObject
from vramline.wire.manifests import write_node, write_pod, write_report
from vramline.wire.nodes import read_node
from vramline.wire.pods import read_pod
from vramline.wire.report_v1alpha1 import decode_report

NOW = 1_000.0


def again(manifest: dict[str, object], kind: type[msgspec.Struct]) -> msgspec.Struct:
    return msgspec.json.decode(msgspec.json.encode(manifest), type=kind)


def read_again(pod: Pod, *claims: GpuShare) -> Pod:
    held = [builders.claim(c.mib, pod.key, gpu=c.uuid, pod_uid=pod.uid, cores=c.cores) for c in claims]
    manifest = again(write_pod(pod, held, now=NOW), PodObject)
    assert isinstance(manifest, PodObject)
    return read_pod(manifest)


def pod(wish: Ask | None = None, **fields: object) -> Pod:
    return Pod(namespace="ns", name="new", uid=builders.uid_of("ns/new"), ask=wish, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wish",
    [
        pytest.param(builders.ask(8_000), id="MiB"),
        pytest.param(builders.ask(8_000, gpus=3), id="MiB on three cards"),
        pytest.param(builders.ask(8_000, cores=30), id="MiB and cores"),
        pytest.param(builders.ask(ShareSize(1, 4), gpus=2), id="a quarter of two"),
        pytest.param(builders.ask(ShareSize(123_456_789, 1_000_000_000)), id="nine decimals"),
        pytest.param(builders.ask(WholeSize(), gpus=2), id="two whole ones"),
        pytest.param(builders.ask(UnsizedSize(), gpus=4), id="four of them"),
        pytest.param(builders.ask(use_models=("h100", "a100"), avoid_models=("t4",)), id="models"),
        pytest.param(builders.ask(use_uuids=("GPU-a",), numa_bind=True), id="UUID and NUMA"),
        pytest.param(builders.ask(mode=RealtimeMode.WARNING), id="a mode"),
        pytest.param(builders.ask(mode=RealtimeMode.DISABLED, enable_realtime=False), id="off"),
        pytest.param(builders.ask(enable_realtime=True), id="on"),
        pytest.param(
            builders.ask(node_policy=PolicyName.SPREAD, gpu_policy=PolicyName.BINPACK), id="policies"
        ),
    ],
)
def test_an_ask_is_read_as_it_was_written(wish: Ask) -> None:
    assert read_again(pod(wish)).ask == wish


def test_a_share_that_no_decimal_says_exactly_claims_the_same_on_every_card() -> None:
    size = read_again(pod(builders.ask(ShareSize(1, 3)))).ask
    assert size is not None
    assert isinstance(size.size, ShareSize)

    for promise in (15_260, 32_500, 81_459, 1_000_000):
        assert promise * size.size.numerator // size.size.denominator == promise // 3


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(pod(None), id="no GPU"),
        pytest.param(pod(builders.ask(), created_at=10.0, priority=7), id="waiting"),
        pytest.param(pod(builders.ask(), phase=PodPhase.BOUND, node="n1"), id="bound"),
        pytest.param(pod(builders.ask(), phase=PodPhase.RUNNING, node="n1", started_at=9.5), id="running"),
        pytest.param(
            pod(builders.ask(), phase=PodPhase.RELEASING, node="n1", started_at=9.0), id="releasing"
        ),
        pytest.param(
            pod(builders.ask(), phase=PodPhase.RELEASING, node="n1", started_at=9.0, ended_at=20.0),
            id="ended",
        ),
        pytest.param(
            pod(
                host=HostNeeds(
                    cpu_milli=1_500,
                    memory_bytes=2**30,
                    node_selector={"pool": "gpu"},
                    affinity=((SelectorTerm("zone", "In", ("a", "b")),), (SelectorTerm("fast", "Exists"),)),
                    affinity_names=((), ("n1",)),
                    tolerations=(Toleration("dedicated", "Equal", "gpu", "NoSchedule"),),
                )
            ),
            id="wishes about its host",
        ),
    ],
)
def test_a_pod_is_read_as_it_was_written(whole: Pod) -> None:
    assert read_again(whole) == whole


def test_a_group_of_affinity_that_matches_nothing_still_matches_nothing() -> None:
    needs = HostNeeds(affinity=((SelectorTerm("", "In", ()),),), affinity_names=((),))

    assert read_again(pod(host=needs)).host == needs


def test_the_cards_of_a_pod_are_named_in_its_allocation() -> None:
    running = pod(builders.ask(), phase=PodPhase.RUNNING, node="n1", started_at=1.0)
    share = GpuShare("GPU-a", Mib(8_000), 20)

    assert read_again(running, share).allocation == Allocation(gpus=(share,), origin=keys.ALLOCATION)


LOOK = builders.observation(
    900, builders.process(500, "ns/p", pid=3), builders.process(400, None, pid=4), at=990.0, temperature_c=50
)


@pytest.mark.parametrize(
    ("machine", "seen"),
    [
        pytest.param(builders.node("n1"), {}, id="no cards"),
        pytest.param(
            builders.node(
                "n1",
                builders.gpu("GPU-a", reserved=Mib(550), model="NVIDIA L40S", numa=1, link_group=0),
                builders.gpu("GPU-b", 16_000, health=Health.SUSPECT, cordoned=True),
                source=InventorySource.REPORT,
                advertised=2,
                platform="x86",
            ),
            {"GPU-a": LOOK},
            id="two cards, one seen",
        ),
        pytest.param(
            builders.node(
                "n1", builders.gpu("GPU-a", slots=100), source=InventorySource.REPORT, advertised=100
            ),
            {"GPU-a": builders.observation(900, listed=False, at=990.0, utilization_percent=7)},
            id="time-sliced, no list of processes",
        ),
        pytest.param(
            builders.node("n1", builders.gpu("GPU-a", unified=True), source=InventorySource.REPORT),
            {"GPU-a": builders.observation(900, builders.process(None, NOT_REPORTED), at=990.0)},
            id="unified, a process nobody could measure",
        ),
        pytest.param(
            Node(
                name="n1",
                ready=False,
                cordoned=True,
                labels={"zone": "a"},
                taints=(Taint("dedicated", "gpu", "NoSchedule"),),
                host=HostRoom(cpu_milli=64_000, memory_bytes=2**38, pods=110),
            ),
            {},
            id="an unwell host",
        ),
    ],
)
def test_a_node_is_read_as_it_was_written(machine: Node, seen: dict[str, Observation]) -> None:
    manifest = again(write_node(machine, now=NOW), NodeObject)
    assert isinstance(manifest, NodeObject)
    report = decode_report(msgspec.to_builtins(write_report(machine, seen)))

    reading = read_node(manifest, report)

    assert reading.node == machine
    known = {uuid: look for uuid, look in reading.observations.items() if uuid in seen}
    assert known == seen
