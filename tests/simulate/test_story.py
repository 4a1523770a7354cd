"""The runner of stories: it must fail when things come out differently, and change manifests as told."""

import pytest

from vramline.errors import RequestError
from vramline.simulate.story import StoryResult, play_story, read_story

_NODE = (
    '{apiVersion: v1, kind: Node, metadata: {name: n1, annotations: {vramline.io/gpus-physical: "1x10000"}}}'
)


def _pod(name: str, mib: int = 4_000) -> str:
    return (
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{gpu-memory: '{mib}'}}}},"
        " spec: {containers: [{name: c}]}}"
    )


def play(*steps: str) -> StoryResult:
    indented = "".join(f"- {step.replace(chr(10), chr(10) + '  ')}\n" for step in steps)
    return play_story(read_story(f"title: t\nsteps:\n{indented}", "story.yaml"))


@pytest.mark.parametrize(
    ("expect", "failure"),
    [
        pytest.param("{pods: {default/p: {status: Pending}}}", "default/p.status is", id="status"),
        pytest.param("{pods: {default/p: {node: n2}}}", "default/p.node is 'n1', expected 'n2'", id="node"),
        pytest.param("{pods: {default/p: {gpus: {}}}}", "default/p.gpus is", id="cards"),
        pytest.param("{pods: {default/p: {warnings: []}}}", "expected none", id="warnings"),
        pytest.param("{pods: {default/p: {message: [nonsense]}}}", "nothing says 'nonsense'", id="message"),
        pytest.param("{pods: {default/q: {}}}", "default/q is not in the result", id="a missing pod"),
        pytest.param("{gpus: {n1/gpu-0: {free_mib: 1}}}", "free_mib is 5900, expected 1", id="a figure"),
        pytest.param("{gpus: {nowhere: {free_mib: 1}}}", "'missing'", id="a missing card"),
        pytest.param("{summary: {bound: 2}}", "summary.bound is 1", id="a count"),
        pytest.param("{problems: [x]}", "problems: nothing says 'x'", id="a problem"),
        pytest.param("{warnings: [x]}", "warnings: nothing says 'x'", id="a warning about the input"),
        pytest.param("{idle: [{node: n1}]}", "best idle node is None", id="the idle node"),
    ],
)
def test_a_difference_is_a_failure_and_said(expect: str, failure: str) -> None:
    result = play(f"title: s\napply: [{_NODE}, {_pod('p')}]\nexpect: {expect}")

    assert not result.passed
    assert failure in "\n".join(result.transcript())


def test_a_problem_that_nobody_expects_is_a_failure() -> None:
    result = play(f"title: s\napply: [{_NODE}, {_pod('p').replace('4000', 'x')}]")

    assert not result.passed


def test_what_a_step_placed_is_there_in_the_next() -> None:
    result = play(
        f"title: one\napply: [{_NODE}, {_pod('z')}]\nexpect: {{summary: {{bound: 1}}}}",
        f"title: two\napply: [{_pod('a', 6000)}]\n"
        "expect: {summary: {running: 1, pending: 1}, pods: {default/z: {gpus: {n1/gpu-0: 4000}}}}",
    )

    assert result.passed, "\n".join(result.transcript())


def test_a_what_if_leaves_no_trace() -> None:
    result = play(
        f"title: one\nwhatif: true\napply: [{_NODE}, {_pod('z')}]\nexpect: {{summary: {{bound: 1}}}}",
        "title: two\nexpect: {summary: {bound: 1, running: 0}}",
    )

    assert result.passed, "\n".join(result.transcript())


def test_objects_are_merged_and_deleted() -> None:
    result = play(
        f"title: one\napply: [{_NODE}, {_pod('p')}]\nexpect: {{summary: {{bound: 1}}}}",
        "title: two\n"
        "apply: [{kind: Node, metadata: {name: n1, annotations: {vramline.io/gpus-physical: 1x500}}}]\n"
        "expect: {gpus: {n1/gpu-0: {total_mib: 500, held_mib: 4000}}}",
        "title: three\ndelete: [Pod default/p]\nexpect: {gpus: {n1/gpu-0: {held_mib: 0}}}",
    )

    assert result.passed, "\n".join(result.transcript())


def test_options_are_settings() -> None:
    result = play(
        f"title: one\napply: [{_NODE}]\noptions: {{margin: 1000, now: '2026-01-01T00:00:00Z'}}\n"
        "expect: {gpus: {n1/gpu-0: {margin_mib: 1000, free_mib: 9000}}}"
    )

    assert result.passed
    assert result.steps[0].report.now == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "story", id="nothing"),
        pytest.param("title: t\nsteps: [{title: s, expects: {}}]", "expects", id="a misspelt key"),
        pytest.param("title: t", "steps", id="no steps"),
        pytest.param("title: [", "not YAML", id="broken"),
        pytest.param(
            "title: t\nsteps: [{title: s, expect: {pods: {a: {state: x}}}}]", "state", id="deep inside"
        ),
    ],
)
def test_a_bad_story_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        read_story(text, "story.yaml")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        pytest.param("title: s\ndelete: [Pod a/b]", "is not there", id="deleting what is not there"),
        pytest.param("title: s\noptions: {margn: 5}", "margn", id="a misspelt option"),
        pytest.param("title: s\noptions: {now: today}", "point in time", id="a time in words"),
    ],
)
def test_a_bad_step_is_refused(step: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        play(step)


def test_a_transcript_tells_what_happened() -> None:
    result = play(f"title: two pods\ntext: come\napply: [{_NODE}, {_pod('a')}, {_pod('b', 9000)}]")

    assert list(result.transcript()) == [
        "t",
        "— two pods",
        "  come",
        "  Bound     default/a: n1, 4,000 MiB on n1/gpu-0",
        "            ! PlacedByBooks: no observation of n1/gpu-0",
        "  Pending   default/b: 0/1 nodes fit: 1 InsufficientVram (closest n1/gpu-0, short by 3,100 MiB)",
        "            → fits on n1 if the ask is ≤ 5,900 MiB",
        "            → fits on n1 if default/a ends",
        "  n1/gpu-0: 10,000 usable − 100 margin − 4,000 held − ? unmanaged = 5,900 MiB free",
        "  ✓ as expected (1 checks)",
    ]
