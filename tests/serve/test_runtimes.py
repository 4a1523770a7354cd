"""Whether pods are given the GPUs named to them: proved, refused, or unknown, and never guessed."""

import pytest

from vramline.serve.findings import Finding, Level
from vramline.serve.runtimes import AgentPod, RuntimeFacts, judge_runtimes

PLAIN = AgentPod()


def judge(**facts: object) -> list[Finding]:
    return list(judge_runtimes(RuntimeFacts(**facts)))  # type: ignore[arg-type]


def test_an_agent_that_sees_cards_proves_it_for_its_node() -> None:
    [found] = judge(agents={"n1": PLAIN}, sees_cards={"n1": True})

    assert found.level is Level.OK
    assert found.message == "unprivileged pods are given the GPUs named to them on n1"


def test_the_class_with_which_it_was_proved_is_named() -> None:
    [found] = judge(agents={"n1": AgentPod(runtime_class="nvidia")}, sees_cards={"n1": True})

    assert found.message.endswith("on n1, with runtimeClassName nvidia")


@pytest.mark.parametrize(
    ("agents", "sees"),
    [
        pytest.param({}, True, id="a report and no agent"),
        pytest.param({"n1": PLAIN}, False, id="an agent that sees nothing"),
        pytest.param({"n1": AgentPod(has_own_libraries=True)}, True, id="an agent with libraries of its own"),
    ],
)
def test_what_proves_nothing_is_unknown(agents: dict[str, AgentPod], sees: bool) -> None:
    [found] = judge(agents=agents, sees_cards={"n1": sees})

    assert found.level is Level.WARNING
    assert found.message.startswith("unknown whether unprivileged pods are given the GPUs")
    assert "NVIDIA_VISIBLE_DEVICES" in found.advice


def test_a_class_that_is_not_there_is_a_problem() -> None:
    wanted = {"nvidia": "platforms.x86.runtimeClass", "kata": "platforms.edge.runtimeClass"}

    [found] = judge(classes=frozenset({"nvidia"}), wanted=wanted)

    assert found.level is Level.PROBLEM
    assert "no RuntimeClass kata, which platforms.edge.runtimeClass names" in found.message


def test_a_runtime_that_does_not_believe_unprivileged_pods_is_a_problem() -> None:
    [found] = judge(refuses_unprivileged=True)

    assert found.level is Level.PROBLEM
    assert "deviceNames" in found.advice


def test_a_cluster_without_gpus_has_nothing_to_tell() -> None:
    assert judge() == []


def test_many_nodes_are_named_in_part() -> None:
    [found] = judge(sees_cards={f"n{number}": True for number in range(9)})

    assert "n0, n1, n2, n3, n4 and 4 more nodes" in found.message
