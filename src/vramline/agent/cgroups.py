"""From the text of /proc/<pid>/cgroup to the pod that a process belongs to.

Each line is `number:controllers:path`. kubelet puts a pod's containers below a folder that carries the pod's
UID, spelled by the cgroup driver:

    cgroupfs   /kubepods/burstable/pod1b9d6bcd-…/9f86d081…
    systemd    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b9d6bcd_….slice/crio-9f8….scope

A `cgroupRoot` of kubelet's is a prefix of either. containerd, where its driver is not kubelet's, writes
`…-pod1b9d6bcd_….slice:cri-containerd:9f86…`. To a reader in a cgroup namespace of its own, paths start at its
own container: `/../../pod1b9d6bcd-…/9f86…` is a neighbour. Version 1, version 2 and both at once differ in
how many lines there are, not in what one looks like. The UID of a static pod is a hash without dashes.
"""

import re

__all__ = ["cgroup_paths", "is_inside_own_pod", "pod_of"]

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:^|-)pod(?P<uid>{_UID})(?:\.slice)?(?::|$)", re.ASCII)
_KUBEPODS = "kubepods"
"""kubelet's own folder for all pods; its name is not configurable."""
_OUTSIDE = "/.."
_LONGEST_PATH = 4096


def cgroup_paths(text: str) -> tuple[str, ...]:
    r"""Return the paths in /proc/<pid>/cgroup, each once.

    >>> cgroup_paths("2:cpu,cpuacct:/a\n1:memory:/a\n0::/b\n")
    ('/a', '/b')
    """
    parts = (line.split(":", 2) for line in text.splitlines())
    return tuple(dict.fromkeys(part[2] for part in parts if len(part) == 3))


def pod_of(paths: tuple[str, ...]) -> str | None:
    """Return the UID of the pod whose folder a process is in; None: it is in no pod's.

    The outermost pod counts: a cluster inside a pod is that pod's affair.

    >>> pod_of(("/kubepods/besteffort/pod1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed/9f86d081",))
    '1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed'
    """
    for path in paths:
        if len(path) > _LONGEST_PATH or not (_KUBEPODS in path or path.startswith(_OUTSIDE)):
            continue
        for name in path.split("/"):
            if found := _POD.search(name):
                return found["uid"].replace("_", "-")
    return None


def is_inside_own_pod(paths: tuple[str, ...]) -> bool:
    """Whether a reader in a cgroup namespace of its own sees its own container, or one beside it."""
    return any(path == "/" or (path.startswith("/../") and path.count("..") == 1) for path in paths)
