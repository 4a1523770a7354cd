"""Whose process is it: from a process number to a pod, by the process's cgroup.

Three answers that must not be mixed up: a pod's UID; None, it is nobody's, because it was looked at and is
in no pod; `Unknown`, because it could not be looked at. A number means something in one PID namespace only:
an agent that does not see the host's processes attributes nothing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from vramline.agent.cgroups import cgroup_paths, is_inside_own_pod, pod_of
from vramline.model.observation import Unknown

__all__ = ["Attributor", "Owner"]

Owner: TypeAlias = str | Unknown | None
"""A pod's UID, nobody, or not known."""

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_FIRST_CGROUP_NAMESPACE = "cgroup:[4026531835]"
"""The kernel gives the namespaces that exist at boot these numbers, always."""

_GONE = Unknown("the process ended while it was looked at")
_ELSEWHERE = Unknown("processes of the host are not visible here; the agent needs hostPID")
_OWN_POD = Unknown("a process in the agent's own pod")


_MOST_KEPT = 4096


class Attributor:
    """Knows the pods of processes that were looked at, as long as they live."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._kept: dict[int, tuple[str, str]] = {}
        """Start time and pod by process number. A number that is used again has another start time."""
        self._in_own_cgroups = _link(proc / "self" / "ns" / "cgroup") not in {None, _FIRST_CGROUP_NAMESPACE}
        self.sees_host = self._finds_host()
        """Whether process numbers mean what they mean to the card's driver."""

    def attribute(self, pids: Iterable[int]) -> dict[int, Owner]:
        """Return the owner of each process, now."""
        if not self.sees_host:
            return dict.fromkeys(pids, _ELSEWHERE)
        owners: dict[int, Owner] = {}
        kept: dict[int, tuple[str, str]] = {}
        for pid in set(pids):
            started = self._start_of(pid)
            known = self._kept.get(pid)
            if known is not None and known[0] == started:
                owners[pid], kept[pid] = known[1], known
                continue
            owner = owners[pid] = _GONE if started is None else self._look_up(pid, started)
            if started is not None and isinstance(owner, str):
                kept[pid] = (started, owner)
        self._kept = kept if len(self._kept) > _MOST_KEPT else self._kept | kept
        return owners

    def _look_up(self, pid: int, started: str) -> Owner:
        paths = self._paths_of(str(pid))
        if not paths or self._start_of(pid) != started:  # ended, or another one by now
            return _GONE
        pod = pod_of(paths)
        if pod is None and self._in_own_cgroups and is_inside_own_pod(paths):
            return _OWN_POD
        return pod

    def _finds_host(self) -> bool:
        """Whether this is the host's PID namespace: the first one, or one whose init is another container's.

        A container's own PID namespace has the container itself, or its pod's pause container, as number 1.
        """
        if _link(self._proc / "self" / "ns" / "pid") == _FIRST_PID_NAMESPACE:
            return True
        first, own = self._paths_of("1"), self._paths_of("self")
        if not first or first == own or pod_of(first) is not None:
            return False
        return not (self._in_own_cgroups and is_inside_own_pod(first))

    def _start_of(self, pid: int) -> str | None:
        """Return when a process started, in the kernel's ticks; None: there is no such process."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()  # a program's name may hold anything, parentheses too
        return fields[19] if len(fields) > 19 else None

    def _paths_of(self, process: str) -> tuple[str, ...]:
        try:
            return cgroup_paths((self._proc / process / "cgroup").read_text(errors="replace"))
        except OSError:
            return ()


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None
