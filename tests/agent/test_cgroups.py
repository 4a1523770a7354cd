"""Every way in which a runtime, a driver and a version of cgroups spell a pod."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.agent.cgroups import cgroup_paths, is_inside_own_pod, pod_of

UID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
UID_ = UID.replace("-", "_")
STATIC = "8d8bf0b2e1c84bbfa4b7e8c9d0f1a2b3"
CONTAINER = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def v1(path: str) -> str:
    return f"12:pids:{path}\n4:memory:{path}\n1:name=systemd:{path}\n"


@pytest.mark.parametrize(
    ("text", "pod"),
    [
        pytest.param(v1(f"/kubepods/burstable/pod{UID}/{CONTAINER}"), UID, id="v1, cgroupfs, burstable"),
        pytest.param(v1(f"/kubepods/pod{UID}/{CONTAINER}"), UID, id="v1, cgroupfs, guaranteed"),
        pytest.param(v1(f"/kubepods/besteffort/pod{STATIC}/{CONTAINER}"), STATIC, id="v1, static pod"),
        pytest.param(
            v1(f"/vl/kubepods/besteffort/pod{UID}/{CONTAINER}"), UID, id="v1, cgroupfs, nested cgroupRoot"
        ),
        pytest.param(
            v1(
                f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/docker-x.scope"
            ),
            UID,
            id="v1, systemd, docker",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/"
            f"cri-containerd-{CONTAINER}.scope\n",
            UID,
            id="v2, systemd, containerd",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-{CONTAINER}.scope/container\n",
            UID,
            id="v2, systemd, cri-o, guaranteed",
        ),
        pytest.param(f"0::/kubepods/burstable/pod{UID}/{CONTAINER}\n", UID, id="v2, cgroupfs"),
        pytest.param(
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/crio-a.scope\n",
            STATIC,
            id="v2, systemd, static pod",
        ),
        pytest.param(
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope\n",
            UID,
            id="v2, systemd, nested cgroupRoot",
        ),
        pytest.param(
            f"0::/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{CONTAINER}\n",
            UID,
            id="v2, containerd with another driver than kubelet's",
        ),
        pytest.param(
            v1(f"/kubepods/burstable/pod{UID}/{CONTAINER}") + "0::/system.slice/containerd.service\n",
            UID,
            id="hybrid",
        ),
        pytest.param(
            f"0::/../../kubepods-besteffort-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope\n",
            UID,
            id="v2, systemd, seen from another pod's cgroup namespace",
        ),
        pytest.param(
            f"0::/../../pod{UID}/{CONTAINER}\n", UID, id="v2, cgroupfs, seen from a neighbour's namespace"
        ),
        pytest.param(
            f"0::/kubepods/pod{UID}/{CONTAINER}/kubelet/kubepods/pod{STATIC}/x\n",
            UID,
            id="a cluster inside a pod is that pod's",
        ),
        pytest.param("0::/\n", None, id="the root"),
        pytest.param("", None, id="nothing"),
        pytest.param("0::/user.slice/user-1000.slice/session-2.scope\n", None, id="somebody's session"),
        pytest.param(f"0::/system.slice/docker-{CONTAINER}.scope\n", None, id="docker without Kubernetes"),
        pytest.param(f"0::/machine.slice/libpod-{CONTAINER}.scope\n", None, id="podman"),
        pytest.param(f"0::/user.slice/pod{UID}/x\n", None, id="a folder that only looks like a pod's"),
        pytest.param("0::/kubepods.slice/kubepods-burstable.slice\n", None, id="no pod in kubelet's folder"),
        pytest.param("0::/kubepods/burstable/pod1234/x\n", None, id="a UID that is none"),
    ],
)
def test_pod_of(text: str, pod: str | None) -> None:
    assert pod_of(cgroup_paths(text)) == pod


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("0::/\n", True),
        (f"0::/../cri-containerd-{CONTAINER}.scope\n", True),
        ("0::/../../../init.scope\n", False),
        ("0::/system.slice\n", False),
    ],
)
def test_what_is_near_the_root_of_a_namespace_is_in_the_own_pod(text: str, own: bool) -> None:
    assert is_inside_own_pod(cgroup_paths(text)) is own


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    pod_of(cgroup_paths(text))
