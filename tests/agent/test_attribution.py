"""Whose process it is, with a /proc that a test writes."""

from pathlib import Path

import pytest

from vramline.agent.attribution import Attributor, Owner
from vramline.model.observation import Unknown

UID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
OTHER = "2c9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
HOST = "pid:[4026531836]"
HOST_CGROUPS = "cgroup:[4026531835]"


class Proc:
    """A /proc with processes in it."""

    def __init__(self, folder: Path, *, pids: str = HOST, cgroups: str = HOST_CGROUPS) -> None:
        self.folder = folder
        (folder / "self" / "ns").mkdir(parents=True)
        (folder / "self" / "ns" / "pid").symlink_to(pids)
        (folder / "self" / "ns" / "cgroup").symlink_to(cgroups)
        (folder / "self" / "cgroup").write_text("0::/\n")

    def start(self, pid: int, path: str, *, at: int = 100, name: str = "python") -> None:
        place = self.folder / str(pid)
        place.mkdir(exist_ok=True)
        zeros = " ".join("0" for _ in range(18))
        (place / "stat").write_text(f"{pid} ({name}) S {zeros} {at} 0\n")
        (place / "cgroup").write_text(f"0::{path}\n")

    def end(self, pid: int) -> None:
        for file in (self.folder / str(pid)).iterdir():
            file.unlink()
        (self.folder / str(pid)).rmdir()

    def owner(self, pid: int) -> Owner:
        return Attributor(self.folder).attribute([pid])[pid]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def pod(uid: str) -> str:
    return f"/kubepods/burstable/pod{uid}/0123"


def test_a_process_in_a_pod_is_the_pods(proc: Proc) -> None:
    proc.start(7, pod(UID))

    assert proc.owner(7) == UID


def test_a_process_of_the_host_is_nobodys(proc: Proc) -> None:
    proc.start(7, "/user.slice")

    assert proc.owner(7) is None


def test_a_process_that_is_gone_is_not_attributed(proc: Proc) -> None:
    assert isinstance(proc.owner(7), Unknown)


def test_a_name_with_parentheses_and_spaces_is_no_trap(proc: Proc) -> None:
    proc.start(7, pod(UID), name="a) S 1 (b")

    assert proc.owner(7) == UID


def test_a_number_that_is_used_again_is_another_process(proc: Proc) -> None:
    attributor = Attributor(proc.folder)
    proc.start(7, pod(UID))
    first = attributor.attribute([7])
    proc.end(7)
    proc.start(7, pod(OTHER), at=200)

    assert (first, attributor.attribute([7])) == ({7: UID}, {7: OTHER})


def test_a_process_that_ended_is_not_remembered_as_its_pods(proc: Proc) -> None:
    attributor = Attributor(proc.folder)
    proc.start(7, pod(UID))
    attributor.attribute([7])
    proc.end(7)

    assert isinstance(attributor.attribute([7])[7], Unknown)


def test_a_process_of_nobody_that_moves_into_a_pod_is_the_pods(proc: Proc) -> None:
    attributor = Attributor(proc.folder)
    proc.start(7, "/system.slice")
    before = attributor.attribute([7])
    proc.start(7, pod(UID))

    assert (before, attributor.attribute([7])) == ({7: None}, {7: UID})


def test_what_is_remembered_is_bounded(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramline.agent.attribution._MOST_KEPT", 3)
    attributor = Attributor(proc.folder)
    for pid in range(1, 20):
        proc.start(pid, pod(UID))
        attributor.attribute([pid])

    assert len(attributor._kept) <= 4


@pytest.mark.parametrize(
    ("first", "own"),
    [
        pytest.param("/", "/", id="a container with a cgroup namespace"),
        pytest.param("/docker/0123", "/docker/0123", id="a container without one"),
        pytest.param(pod(UID), pod(UID), id="a pod without a cgroup namespace"),
        pytest.param("/../cri-containerd-9f.scope", "/", id="a pod whose containers share their processes"),
    ],
)
def test_in_a_pid_namespace_of_its_own_nothing_is_attributed(tmp_path: Path, first: str, own: str) -> None:
    proc = Proc(tmp_path, pids="pid:[4026532500]", cgroups="cgroup:[4026532501]")
    proc.start(1, first)
    (tmp_path / "self" / "cgroup").write_text(f"0::{own}\n")
    proc.start(7, "/user.slice")

    assert Attributor(tmp_path).sees_host is False
    assert isinstance(proc.owner(7), Unknown)


def test_a_host_inside_a_container_is_a_host(tmp_path: Path) -> None:
    proc = Proc(tmp_path, pids="pid:[4026532500]", cgroups="cgroup:[4026532501]")
    proc.start(1, "/../../../init.scope")
    proc.start(7, f"/../../pod{UID}/0123")

    assert proc.owner(7) == UID


def test_a_process_of_the_agents_own_pod_is_not_nobodys(tmp_path: Path) -> None:
    proc = Proc(tmp_path, cgroups="cgroup:[4026532501]")
    proc.start(7, "/../cri-containerd-9f.scope")
    proc.start(8, "/../../../system.slice/sshd.service")

    assert isinstance(proc.owner(7), Unknown)
    assert proc.owner(8) is None
