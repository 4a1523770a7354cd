"""Pods meet Pod Security "restricted"; what the agent needs beyond it is listed here and in the manual."""

from collections.abc import Iterator

import pytest

from house.tree import ROOT
from install.rendered import Object, find_object, pod_specs, render_with_helm, rendered
from vramline.cli.agent import DEVICE_PLUGINS

OBJECTS = rendered("--with-agent")
PODS = pod_specs(OBJECTS)
SCHEDULER = PODS["vramline-scheduler"]
AGENT = PODS["vramline-agent"]

AGENT_NEEDS = ["hostPID", "volume pod-resources is a hostPath", "may run as root", "runs as user 0"]
PLAIN_VOLUMES = {"configMap", "emptyDir", "projected", "secret", "downwardAPI", "csi", "ephemeral"}


def offences(pod: Object) -> Iterator[str]:
    """What Pod Security "restricted" holds against a pod, by the published list of controls."""
    context = pod.get("securityContext", {})
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field))
    for volume in pod.get("volumes", []):
        kind = next(iter(volume.keys() - {"name"}))
        if kind not in PLAIN_VOLUMES:
            yield f"volume {volume['name']} is a {kind}"
    if not context.get("runAsNonRoot"):
        yield "may run as root"
    if context.get("runAsUser") == 0:
        yield "runs as user 0"
    if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "no seccomp profile"
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        yield from (f"{container['name']}: {text}" for text in container_offences(container))


def container_offences(container: Object) -> Iterator[str]:
    context = container.get("securityContext", {})
    capabilities = context.get("capabilities", {})
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield "a port of the host"


def test_the_scheduler_is_restricted() -> None:
    assert list(offences(SCHEDULER)) == []


def test_the_agent_needs_this_and_no_more() -> None:
    assert list(offences(AGENT)) == AGENT_NEEDS


def test_the_device_plugin_adds_one_folder_that_is_written_to() -> None:
    agent = pod_specs(rendered("--with-plugin"))["vramline-agent"]

    assert set(offences(agent)) - set(AGENT_NEEDS) == {"volume device-plugins is a hostPath"}
    [container] = agent["containers"]
    written = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
    assert written == [str(DEVICE_PLUGINS)]


def test_webhook_and_agent_are_told_of_the_plugin_together() -> None:
    for options, backend in (((), None), (("--with-plugin",), "plugin")):
        told = {
            variable.get("value")
            for spec in pod_specs(rendered("--with-agent", *options)).values()
            for container in spec["containers"]
            for variable in container.get("env", [])
            if variable["name"] == "VRAMLINE_BACKEND"
        }
        assert told == ({backend} if backend else set())


@pytest.mark.parametrize("word", ["`hostPID`", "`hostPath`", "root"])
def test_what_the_agent_needs_is_explained(word: str) -> None:
    manual = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")

    assert word in manual.partition("\n## The agent\n")[2].partition("\n## ")[0]


def test_the_check_sees_what_it_should() -> None:
    pod = {
        "hostNetwork": True,
        "hostIPC": True,
        "volumes": [{"name": "disk", "hostPath": {"path": "/"}}],
        "containers": [
            {
                "name": "c",
                "ports": [{"containerPort": 1, "hostPort": 1}],
                "securityContext": {
                    "privileged": True,
                    "procMount": "Unmasked",
                    "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
                },
            }
        ],
    }

    assert list(offences(pod)) == [
        "hostNetwork",
        "hostIPC",
        "volume disk is a hostPath",
        "may run as root",
        "no seccomp profile",
        "c: privileged",
        "c: may gain privileges",
        "c: capabilities",
        "c: procMount",
        "c: a port of the host",
    ]


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_nothing_is_written_to_an_image_or_a_disk(pod: Object) -> None:
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in pod["containers"])
    mounts = [mount for container in pod["containers"] for mount in container["volumeMounts"]]
    assert {mount["name"] for mount in mounts if not mount.get("readOnly")} <= {"history"}


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_memory_is_bounded_and_everything_is_requested(pod: Object) -> None:
    for container in pod["containers"]:
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_the_namespace_enforces_it() -> None:
    labels = {
        name: find_object(OBJECTS, "Namespace", name)["metadata"]["labels"][
            "pod-security.kubernetes.io/enforce"
        ]
        for name in ("vramline-system", "vramline-agent")
    }

    assert labels == {"vramline-system": "restricted", "vramline-agent": "privileged"}


def test_the_folder_of_a_boards_libraries_is_read_only_and_only_there_when_it_is_named() -> None:
    folder = "/usr/lib/aarch64-linux-gnu/nvidia"
    chosen = render_with_helm("--set", f"agent.enabled=true,agent.libraryFolder={folder}")
    agent = pod_specs(chosen)["vramline-agent"]

    [mount] = [each for each in agent["containers"][0]["volumeMounts"] if each["mountPath"] == folder]
    assert mount["readOnly"]
    assert {"name": "libraries", "hostPath": {"path": folder, "type": "Directory"}} in agent["volumes"]
    assert folder not in str(AGENT)
