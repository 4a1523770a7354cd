"""The scheduler's Deployment and its two configurations: they fit each other and the program."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.applications import Starlette
from starlette.routing import Route

from install.rendered import Object, find_object, pod_specs, rendered
from scheduler.worlds import cluster_of
from vramline.explain.history import History
from vramline.kube.client import Timing
from vramline.scheduler.app import build_app
from vramline.scheduler.webhook import build_webhook_app
from vramline.settings import Settings, load
from vramline.wire import keys
from vramline.wire.admission import AdmissionOptions

OBJECTS = rendered("--margin", "512Mi", "--realtime", "warning")
(KUBE, OWN) = pod_specs(OBJECTS)["vramline-scheduler"]["containers"]


def data_of(name: str) -> dict[str, str]:
    data: dict[str, str] = find_object(OBJECTS, "ConfigMap", name)["data"]
    return data


def kube_configuration() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(data_of("vramline-kube-scheduler")["kube-scheduler.yaml"])
    return loaded


def mounted(container: Object, path: str) -> bool:
    """Whether a file that the container is told to read is in a ConfigMap that is mounted there."""
    spec = pod_specs(OBJECTS)["vramline-scheduler"]
    sources = {volume["name"]: volume.get("configMap", {}).get("name") for volume in spec["volumes"]}
    return any(
        Path(path).parent == Path(mount["mountPath"]) and Path(path).name in data_of(sources[mount["name"]])
        for mount in container["volumeMounts"]
        if sources[mount["name"]]
    )


def paths_of(app: Starlette) -> set[str]:
    return {route.path for route in app.routes if isinstance(route, Route)}


def test_both_programs_find_their_file() -> None:
    assert mounted(KUBE, KUBE["command"][1].removeprefix("--config="))
    assert mounted(OWN, OWN["args"][1].removeprefix("--config="))


def test_vramline_leads_beside_the_kube_scheduler_that_leads() -> None:
    election = kube_configuration()["leaderElection"]
    followed = f"{election['resourceNamespace']}/{election['resourceName']}"

    assert f"--follow-lease={followed}" in OWN["args"]
    assert "POD_NAME" in {variable["name"] for variable in OWN["env"]}


def test_the_settings_file_is_read_without_a_mistake() -> None:
    settings = load(yaml.safe_load(data_of("vramline-scheduler")["vramline.yaml"]), {}, {})

    assert (settings.margin, settings.realtime_mode) == (512, "warning")


def test_an_empty_settings_file_means_the_defaults() -> None:
    text = find_object(rendered(), "ConfigMap", "vramline-scheduler")["data"]["vramline.yaml"]

    assert load(yaml.safe_load(text), {}, {}).margin == Settings().margin


def test_the_extender_is_called_where_the_program_listens() -> None:
    (extender,) = kube_configuration()["extenders"]

    assert extender["urlPrefix"] == f"http://{Settings().listen}"


def test_every_verb_is_served() -> None:
    (extender,) = kube_configuration()["extenders"]
    named = {f"/{extender[verb]}" for verb in ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb")}

    assert named <= paths_of(build_app(cluster_of(), History()))


def test_pods_are_never_placed_without_vramline() -> None:
    (extender,) = kube_configuration()["extenders"]

    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True


def test_kube_scheduler_waits_longer_than_a_bind_may_take() -> None:
    (extender,) = kube_configuration()["extenders"]

    assert int(extender["httpTimeout"].removesuffix("s")) > 2 * (Timing().write_s + 2)


def test_kube_scheduler_looks_at_every_node() -> None:
    assert [profile["percentageOfNodesToScore"] for profile in kube_configuration()["profiles"]] == [100]


def test_kube_scheduler_ignores_the_mark_alone() -> None:
    (extender,) = kube_configuration()["extenders"]

    assert {each["name"]: each["ignoredByScheduler"] for each in extender["managedResources"]} == {
        keys.MANAGED: True,
        keys.SLOT: False,
        keys.GPU_COUNT: False,
        keys.GPU_COUNT_SHARED: False,
    }


def test_two_replicas_keep_apart_and_one_may_be_evicted() -> None:
    deployment = find_object(OBJECTS, "Deployment", "vramline-scheduler")["spec"]
    pods = deployment["template"]["spec"]

    assert deployment["replicas"] == 2
    assert pods["affinity"]["podAntiAffinity"]
    assert pods["topologySpreadConstraints"]
    assert find_object(OBJECTS, "PodDisruptionBudget", "vramline-scheduler")["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy"])
def test_it_selects_the_pods(kind: str) -> None:
    spec = next(each for each in OBJECTS if each["kind"] == kind)["spec"]
    selector = spec.get("podSelector", spec.get("selector"))
    labels = find_object(OBJECTS, "Deployment", "vramline-scheduler")["spec"]["template"]["metadata"][
        "labels"
    ]

    assert selector.get("matchLabels", selector) == labels


def test_the_webhook_is_reached_by_name() -> None:
    ports = {port["name"] for port in OWN["ports"]}
    service = find_object(OBJECTS, "Service", "vramline-webhook")["spec"]["ports"]
    policy = find_object(OBJECTS, "NetworkPolicy", "vramline-scheduler")["spec"]["ingress"]

    assert {port["targetPort"] for port in service} == ports
    assert {port["port"] for rule in policy for port in rule["ports"]} == ports


def test_health_is_asked_for_where_the_webhook_is_served() -> None:
    served = paths_of(build_webhook_app(AdmissionOptions(), is_ready=lambda: True))
    probes = {kind: OWN[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    webhooks = find_object(OBJECTS, "MutatingWebhookConfiguration", "vramline")["webhooks"]

    assert {probe["port"] for probe in probes.values()} == {"webhook"}
    assert probes["livenessProbe"]["path"] != probes["readinessProbe"]["path"]
    assert {probe["path"] for probe in probes.values()} <= served
    assert {webhook["clientConfig"]["service"]["path"] for webhook in webhooks} <= served


@pytest.mark.parametrize(
    "options", [("--margin", "1Gi"), ("--scheduler-name", "vram")], ids=["settings", "kube-scheduler"]
)
def test_another_configuration_is_another_pod(options: tuple[str, ...]) -> None:
    before, after = (
        find_object(rendered(*given), "Deployment", "vramline-scheduler")["spec"]["template"]["metadata"]
        for given in ((), options)
    )

    assert before["annotations"] != after["annotations"]
