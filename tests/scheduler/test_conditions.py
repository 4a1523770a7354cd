"""The condition of pods that wait: few writes, and never a stale word."""

import asyncio

import msgspec

from builders import ask, fleet_of, gpu, node
from kubernetes_builders import pod_object
from vramline.decide.engine import decide
from vramline.explain.decision import explain_decision
from vramline.explain.history import DecisionRecord, PodOutcome
from vramline.model.pod import Pod
from vramline.model.rules import Rules
from vramline.scheduler.conditions import PlacedCondition, PlacedConditions
from vramline.scheduler.live import LiveState


class Written:
    """Takes conditions, and shows them on the pods as the API server would."""

    def __init__(self, live: LiveState) -> None:
        self.told: list[tuple[str, PlacedCondition]] = []
        self._live = live

    async def tell_placed(self, pod: Pod, condition: PlacedCondition) -> None:
        self.told.append((pod.name, condition))
        told = "" if condition.placed else condition.reason
        self._live._pods[pod.uid] = msgspec.structs.replace(pod, told=told)


class World:
    """A state with pods, whose clock is turned by hand."""

    def __init__(self) -> None:
        self.at = 0.0
        self.live = LiveState(Rules(), clock=lambda: self.at)
        self.written = Written(self.live)
        self.conditions = PlacedConditions(self.live, self.written, lambda: True, clock=lambda: self.at)

    def refuse(self, name: str, mib: int = 90_000) -> None:
        """A pod, known to the API server, finds no place."""
        uid = f"uid-{name}"
        self.live._pods.setdefault(uid, Pod(namespace="ns", name=name, uid=uid, ask=ask(mib)))
        fleet = fleet_of(node("n1", gpu()))
        decision = decide(fleet, ask(mib), Rules(), now=0.0)
        record = DecisionRecord(
            at=self.at,
            pod=f"ns/{name}",
            pod_uid=uid,
            outcome=PodOutcome.PENDING,
            explanation=explain_decision(fleet, decision, Rules()),
        )
        self.conditions.hear(record)

    def change(self, name: str, **fields: object) -> None:
        """The API server tells something else of a pod."""
        pod = self.live._pods[f"uid-{name}"]
        self.live._pods[pod.uid] = msgspec.structs.replace(pod, **fields)

    def tell(self, after_s: float) -> list[tuple[str, PlacedCondition]]:
        """Let time pass; return what is written then."""
        self.at += after_s
        self.written.told = []
        asyncio.run(self.conditions.tell())
        return self.written.told


def test_a_pod_that_waits_is_told_why_in_one_line() -> None:
    world = World()
    world.refuse("llm")

    assert world.tell(1.0) == []
    [(name, condition)] = world.tell(1.0)
    assert (name, condition.placed, condition.reason) == ("llm", False, "GpuTooSmall")
    assert "closest n1/GPU-a" in condition.message


def test_a_pod_that_is_bound_soon_costs_no_write() -> None:
    world = World()
    world.refuse("llm")
    world.tell(1.0)
    world.change("llm", node="n1")

    assert world.tell(10.0) == []


def test_the_same_reason_is_written_once_and_another_after_a_minute() -> None:
    world = World()
    world.refuse("llm")
    assert len(world.tell(2.0)) == 1
    for _ in range(5):
        world.refuse("llm")
        assert world.tell(10.0) == []
    world.change("llm", told="NoSlotLeft")
    assert world.tell(1.0) == []
    assert len(world.tell(10.0)) == 1


def test_once_it_is_on_a_node_its_condition_says_so_once() -> None:
    world = World()
    world.refuse("llm")
    world.tell(2.0)
    world.change("llm", node="n1")

    [(_, condition)] = world.tell(61.0)
    assert (condition.placed, condition.reason, condition.message) == (True, "Placed", "on n1")
    assert world.tell(120.0) == []


def test_a_new_leader_reads_off_the_pods_what_was_told_before() -> None:
    world = World()
    world.live._pods["uid-old"] = Pod(
        namespace="ns", name="old", uid="uid-old", ask=ask(), told="InsufficientVram", node="n1"
    )

    assert [(name, condition.placed) for name, condition in world.tell(1.0)] == [("old", True)]


def test_many_pods_are_written_a_few_at_a_time() -> None:
    world = World()
    for number in range(12):
        world.refuse(f"llm-{number}")

    assert [len(world.tell(after_s)) for after_s in (2.0, 1.0, 1.0, 1.0)] == [5, 5, 2, 0]


def test_what_stands_in_a_pods_status_is_read() -> None:
    told = {"type": "vramline.io/Placed", "status": "False", "reason": "InsufficientVram"}
    live = LiveState(Rules(), clock=lambda: 0.0)
    live.set_pod(pod_object(meta={"uid": "u"}, status={"conditions": [told]}))

    assert live.pods["u"].told == "InsufficientVram"
