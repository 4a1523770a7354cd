"""Who is sent away where VRAM alone is short, when, and what is kept for whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.evictions import Stage
from vramline.decide.engine import decide
from vramline.model.pod import Pod
from vramline.model.reason import CODE_OF, Reason


def fits(stage: Stage, name: str, node: str = "n1") -> bool:
    """Whether a waiting pod could be bound to a node now."""
    pod = stage.pod(name)
    assert pod.ask is not None
    view = stage.live.view_of(node, pod)
    return decide(view, pod.ask, stage.live.rules, now=stage.live.now()).placement is not None


def full_stage() -> Stage:
    """Two nodes, each with one pod in the way; that on n2 is the less important one."""
    stage = Stage("n1", "n2")
    stage.run("a", 8_000, priority=5, node="n1")
    stage.run("b", 8_000, priority=4, node="n2")
    return stage


def test_the_least_harm_is_done_and_everybody_is_told() -> None:
    stage = full_stage()
    stage.wait("new", 6_000, priority=10)
    stage.refuse("new", "n1", "n2")

    assert stage.step() == ["b"]
    assert stage.pod("new").preempts_on == stage.pod("new").nominated == "n2"
    assert [(each.regarding.name, each.reason) for each in stage.told] == [
        ("new", "Preempting"),
        ("b", "Preempted"),
    ]
    assert stage.preempter.evictions == 1


def test_only_nodes_that_kube_scheduler_finds_good_are_looked_at() -> None:
    stage = full_stage()
    stage.wait("new", 6_000, priority=10)
    stage.refuse("new", "n1")

    assert stage.step() == ["a"]


def test_kube_scheduler_has_its_turn_first() -> None:
    stage = full_stage()
    uid = stage.wait("new", 6_000, priority=10)
    stage.preempter.refused(uid, ("n1",))
    assert stage.step() == []

    stage.preempter.answered(uid, ("n3",))
    stage.now += 60.0

    assert stage.step() == []


def test_kube_scheduler_is_told_nobody_while_others_leave_for_the_pod() -> None:
    stage = full_stage()
    uid = stage.wait("new", 6_000, priority=10)
    stage.refuse("new", "n1")
    assert stage.preempter.may_answer(uid)

    stage.step()

    assert not stage.preempter.may_answer(uid)


def test_nobody_else_goes_while_the_first_ones_leave() -> None:
    stage = full_stage()
    stage.wait("new", 6_000, priority=10)
    stage.refuse("new", "n1", "n2")
    stage.step()
    stage.refuse("new", "n1", "n2")

    assert stage.step() == ["b"]


@pytest.mark.parametrize(
    ("priority", "spec"),
    [
        pytest.param(4, {}, id="nobody is less important"),
        pytest.param(10, {"preemptionPolicy": "Never"}, id="the pod preempts never"),
    ],
)
def test_nobody_goes(priority: int, spec: dict[str, str]) -> None:
    stage = full_stage()
    stage.wait("new", 6_000, priority=priority, **spec)
    stage.refuse("new", "n1", "n2")

    assert stage.step() == []
    assert stage.pod("new").nominated is None


def test_a_pod_that_a_budget_protects_stays_and_another_goes() -> None:
    stage = full_stage()
    stage.protected = {"b"}
    stage.wait("new", 6_000, priority=10)
    stage.refuse("new", "n1", "n2")

    assert stage.step() == ["a"]
    assert stage.pod("new").nominated == "n1"


def test_a_follower_sends_nobody_away() -> None:
    stage = full_stage()
    stage.leads = False
    stage.wait("new", 6_000, priority=10)
    stage.refuse("new", "n1", "n2")

    assert stage.step() == []


def test_nobody_goes_without_a_stored_nomination_and_a_changed_pod_is_planned_for_anew() -> None:
    stage = full_stage()
    stage.wait("new", 6_000, priority=10)
    stage.answers_are_lost = True
    stage.refuse("new", "n1")
    assert stage.step() == []

    stage.answers_are_lost = False
    stage.now += 60.0
    stage.refuse("new", "n1")

    assert stage.step() == ["a"]


def test_a_pod_for_which_another_already_leaves_waits_without_an_eviction() -> None:
    stage = full_stage()
    stage.wait("first", 6_000, priority=10)
    stage.refuse("first", "n1")
    stage.step()
    stage.end("first")
    stage.wait("second", 6_000, priority=10)
    stage.refuse("second", "n1", "n2")

    assert stage.step() == ["a"]
    assert stage.pod("second").preempts_on == "n1"


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────


def waiting_stage() -> Stage:
    """A preemptor waits on n1 for all of its card: 8,000 that leave and 2,000 that are free."""
    stage = Stage("n1")
    stage.run("a", 8_000, priority=5)
    stage.wait("new", 10_000, priority=10)
    stage.refuse("new", "n1")
    assert stage.step() == ["a"]
    return stage


@pytest.mark.parametrize(
    ("priority", "may"),
    [(5, False), (10, False), (11, True)],
    ids=["less important", "equally important", "more important"],
)
def test_free_memory_beside_what_leaves_is_kept_from(priority: int, may: bool) -> None:
    stage = waiting_stage()
    stage.wait("thief", 2_000, priority=priority)

    assert fits(stage, "thief") is may
    codes = stage.live.nominees.refuse(stage.live.fleet, stage.pod("thief"), now=stage.live.now())
    assert codes is not None
    assert (codes[0] == CODE_OF[Reason.KEPT_FOR_ANOTHER]) is not may


def test_a_restart_forgets_neither_what_is_kept_nor_that_somebody_leaves_already() -> None:
    stage = waiting_stage()
    stage.wait("thief", 2_000, priority=5)
    stage.start()

    assert not fits(stage, "thief")
    stage.refuse("new", "n1")
    assert stage.step() == ["a"]


def test_nothing_is_kept_once_the_preemptor_is_gone() -> None:
    stage = waiting_stage()
    stage.wait("next", 2_000, priority=0)
    stage.end("new")

    assert fits(stage, "next")


def test_a_mere_nomination_keeps_nothing() -> None:
    stage = Stage("n1")
    stage.wait("hinted", 10_000, priority=10, status={"nominatedNodeName": "n1"})
    stage.wait("other", 10_000, priority=0)

    assert stage.pod("hinted").nominated == "n1"
    assert fits(stage, "other")


def test_two_equal_preemptors_of_one_node_do_not_wait_for_each_other() -> None:
    stage = Stage("n1")
    mark = {"type": "vramline.io/Preemptor", "status": "True", "reason": "n1"}
    for name in ("one", "two"):
        stage.wait(name, 6_000, priority=10, status={"conditions": [mark]})

    assert [fits(stage, name) for name in ("one", "two")] == [True, False]


def test_a_preemptor_for_which_there_is_no_room_any_more_gives_its_place_up() -> None:
    stage = waiting_stage()
    stage.run("late", 3_000, priority=20)
    stage.refuse("new", "n1")
    stage.step()

    assert stage.pod("new").preempts_on is None
    assert stage.evicted == ["a"]


def test_what_kube_scheduler_frees_is_kept_too() -> None:
    stage = Stage("n1")
    stage.run("a", 8_000, priority=5)
    uid = stage.wait("new", 10_000, priority=10)
    stage.preempter.answered(uid, ("n1",))
    stage.wait("new", 10_000, priority=10, status={"nominatedNodeName": "n1"})

    stage.answers_are_lost = True
    stage.step()
    assert stage.pod("new").preempts_on is None
    stage.answers_are_lost = False
    stage.step()

    assert stage.pod("new").preempts_on == "n1"
    assert stage.evicted == []


def test_a_hint_from_before_is_not_taken_for_where_kube_scheduler_preempts() -> None:
    stage = full_stage()
    hinted = {"nominatedNodeName": "n2"}
    uid = stage.wait("new", 6_000, priority=10, status=hinted)
    stage.preempter.answered(uid, ("n1", "n2"))  # it is about to choose

    stage.step()
    assert stage.pod("new").preempts_on is None

    stage.wait("new", 6_000, priority=10, status={"nominatedNodeName": "n1"})
    stage.step()
    assert stage.pod("new").preempts_on == "n1"


def test_kube_scheduler_may_preempt_on_the_node_of_a_hint() -> None:
    stage = full_stage()
    uid = stage.wait("new", 6_000, priority=10, status={"nominatedNodeName": "n2"})
    stage.preempter.answered(uid, ("n1", "n2"))
    stage.now += 2.0

    stage.step()

    assert stage.pod("new").preempts_on == "n2"


def test_a_mere_hint_to_a_node_whose_pods_leave_becomes_a_place_that_is_kept() -> None:
    stage = waiting_stage()
    stage.end("new")
    stage.wait("hinted", 10_000, priority=10, status={"nominatedNodeName": "n1"})
    stage.refuse("hinted", "n1")

    assert stage.step() == ["a"]
    assert stage.pod("hinted").preempts_on == "n1"


# ── for every cluster ────────────────────────────────────────────────────────────────────────────────

SIZES = st.integers(500, 4_000)
PODS = st.lists(st.tuples(SIZES, st.integers(0, 4), st.sampled_from(["n1", "n2", "n3"])), max_size=9)


@given(
    pods=PODS,
    ask=st.integers(1_000, 10_000),
    priority=st.integers(0, 4),
    protected=st.sets(st.integers(0, 8)),
)
def test_only_less_important_pods_of_one_node_go_and_none_of_them_could_have_stayed(
    pods: list[tuple[int, int, str]], ask: int, priority: int, protected: set[int]
) -> None:
    stage = Stage("n1", "n2", "n3")
    left = dict.fromkeys(["n1", "n2", "n3"], 10_000)
    for number, (mib, importance, node) in enumerate(pods):
        if mib <= left[node]:
            left[node] -= mib
            stage.run(f"p{number}", mib, importance, node)
    stage.protected = {f"p{number}" for number in protected}
    before = dict(stage.live.pods)
    stage.wait("new", ask, priority)
    if any(free >= ask for free in left.values()):
        return  # it is not refused at all
    stage.refuse("new", "n1", "n2", "n3")

    gone = [before[f"uid-{name}"] for name in stage.step()]

    chosen = stage.pod("new").preempts_on
    assert all(pod.node == chosen and pod.priority < priority for pod in gone)
    assert not stage.protected & {pod.name for pod in gone}
    assert bool(gone) == (chosen is not None) == bool(_feasible(stage, before, ask, priority, left))
    if chosen is not None:
        freed = [_mib(pod) for pod in gone]
        assert left[chosen] + sum(freed) >= ask
        assert left[chosen] + sum(freed) - min(freed) < ask


def _mib(pod: Pod) -> int:
    assert pod.allocation is not None
    return pod.allocation.gpus[0].mib


def _feasible(stage: Stage, pods: dict[str, Pod], ask: int, priority: int, left: dict[str, int]) -> list[str]:
    """The nodes on which sending away everybody who may be sent away would be enough."""
    free = dict(left)
    for pod in pods.values():
        if pod.priority < priority and pod.name not in stage.protected and pod.node is not None:
            free[pod.node] += _mib(pod)
    return [node for node, mib in free.items() if mib >= ask]
