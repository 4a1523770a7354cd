"""Decisions of a snapshot, made again, and files that are none."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders import ask, gpu, node, observation, process
from scheduler.worlds import Door, cluster_of, pending
from vramline.cli.main import main
from vramline.errors import RequestError
from vramline.explain import replay as engine
from vramline.explain.decision import Explanation, explain_decision
from vramline.simulate.replay import replay_snapshot


def snapshot() -> dict[str, Any]:
    """A snapshot after one bind, and one refusal, through the extender."""
    seen = observation(9_000, process(3_000), at=990.0)
    cluster = cluster_of(node("n1", gpu("GPU-a"), gpu("GPU-b")), node("n2", gpu("GPU-c")), GPU_a=seen)
    door = Door(cluster)
    for name, mib in (("fits", 8_000), ("large", 90_000)):
        pod = pending(cluster, ask(mib), name=name)
        told = {"vramline.io/vram": str(mib)}
        meta = {"name": name, "namespace": "ns", "uid": pod.uid, "annotations": told}
        spec = {"containers": [{"name": "main"}]}
        door.post("/filter", {"Pod": {"metadata": meta, "spec": spec}, "NodeNames": ["n1", "n2"]})
        door.post("/bind", {"PodName": name, "PodNamespace": "ns", "PodUID": pod.uid, "Node": "n1"})
    taken: dict[str, Any] = door.get("/snapshot").json()
    return taken


def test_binds_and_refusals_of_the_extender_come_out_the_same() -> None:
    replay = replay_snapshot(json.dumps(snapshot()).encode(), subject="s")

    assert [(each.pod, each.then.outcome.value, each.same) for each in replay.decisions] == [
        ("ns/fits", "Bound", True),
        ("ns/large", "Pending", True),
        ("ns/large", "Pending", True),
    ]


def broken(how: str) -> bytes:
    """Return a snapshot that something happened to."""
    taken = snapshot()
    packed = base64.b64decode(taken["journal"]["cases"])
    middle = len(packed) // 2
    whole = {
        "cut off": json.dumps(taken).encode()[: middle // 2],
        "a list": b"[]",
        "nothing": b"",
    }
    changes: dict[str, dict[str, object]] = {
        "cases cut off": {"cases": base64.b64encode(packed[:-50]).decode()},
        "cases changed": {
            "cases": base64.b64encode(packed[:middle] + bytes(8) + packed[middle + 8 :]).decode()
        },
        "not base64": {"cases": "%%%"},
        "another format": {"format": 99},
    }
    if how in whole:
        return whole[how]
    if how == "no journal":
        del taken["journal"]
    else:
        taken["journal"] |= changes[how]
    return json.dumps(taken).encode()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut off", "is no snapshot"),
        ("cases cut off", "the file was cut off or changed"),
        ("cases changed", "the file was cut off or changed"),
        ("not base64", "the file was changed"),
        ("another format", "is of format 99"),
        ("no journal", "holds no decisions"),
        ("a list", "is no snapshot"),
        ("nothing", "is no snapshot"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_in_one_line(how: str, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        replay_snapshot(broken(how), subject="state.json")

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("state.json")


def test_the_command_says_of_each_decision_whether_it_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.json").write_text(json.dumps(snapshot()))

    assert main(["simulate", "replay", str(tmp_path / "state.json")]) == 0
    assert capsys.readouterr().out.endswith("3 decisions, made again: all the same\n")
    assert main(["simulate", "replay", str(tmp_path / "state.json"), "-o", "json"]) == 0
    assert [each["same"] for each in json.loads(capsys.readouterr().out)["decisions"]] == [True] * 3


def says_something_else(*arguments: Any, **named: Any) -> Explanation:
    return msgspec.structs.replace(explain_decision(*arguments, **named), message="something else")


def test_a_decision_that_another_engine_would_make_differently_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(snapshot()).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    monkeypatch.setattr(engine, "explain_decision", says_something_else)

    assert main(["simulate", "replay", "-"]) == 1
    assert "DIFFERS in explanation.message" in capsys.readouterr().out


@pytest.mark.parametrize(
    "paths", [(), ("a", "b"), ("/nowhere/state.json",)], ids=["none", "two", "not there"]
)
def test_a_wrong_call_is_one_line(paths: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "replay", *paths]) == 2
    assert capsys.readouterr().err.count("\n") == 1
