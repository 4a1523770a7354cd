"""What admission changes, refuses and leaves alone."""

from typing import Any

import msgspec
import pytest

from json_patch import apply_patch
from kubernetes_builders import container, pod_document
from vramline.model.ask import Ask, MibSize, ShareSize, UnsizedSize, WholeSize
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.admission import (
    AdmissionOptions,
    Admitted,
    Backend,
    Refused,
    SchedulerNamePolicy,
    plan_admission,
)
from vramline.wire.asks import read_ask, read_spelled_ask
from vramline.wire.kubernetes import PodObject
from vramline.wire.pod_patch import PatchOperation

Document = dict[str, Any]

ENTRY = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['vramline.io/visible-devices']"}
    },
}
MANAGED = {"vramline.io/managed": "1"}
EIGHT = {"vramline.io/vram": "8000"}
SEAL = '{"gpus":1,"size":{"type":"mib","mib":8000}}'


def plan(pod: Document, **options: Any) -> Admitted | Refused:
    return plan_admission(pod, operation="CREATE", options=AdmissionOptions(**options))


def admit(pod: Document, **options: Any) -> Document:
    """The pod as it is stored."""
    outcome = plan(pod, **options)
    assert isinstance(outcome, Admitted), outcome
    return apply_patch(pod, outcome.patch)


def warnings_of(pod: Document, **options: Any) -> tuple[str, ...]:
    outcome = plan(pod, **options)
    assert isinstance(outcome, Admitted), outcome
    return outcome.warnings


def ask_of(pod: Document) -> Ask | None:
    return read_ask(msgspec.convert(pod, PodObject))


def limits_of(pod: Document) -> list[Document]:
    everyone = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    return [each.get("resources", {}).get("limits", {}) for each in everyone]


# ── untouched ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pod_document(), id="a plain pod"),
        pytest.param(pod_document(container(limits={"cpu": "2"})), id="CPU only"),
        pytest.param(pod_document(container(gpu=0)), id="zero GPUs"),
        pytest.param(pod_document(nodeName="n1"), id="a plain pod that chose its node"),
        pytest.param(pod_document(container(limits={"nvidia.com/mig-1g.5gb": 1})), id="a MIG instance"),
        pytest.param(
            pod_document(container(limits={"example.com/gpu": 1}), schedulerName="volcano"),
            id="another vendor's GPU",
        ),
        pytest.param({"metadata": {}, "spec": {}}, id="almost nothing"),
        pytest.param({}, id="nothing"),
    ],
)
def test_a_pod_without_an_ask_stays_as_it_is(pod: Document) -> None:
    assert plan(pod) == Admitted()


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "", "UPDATE"])
def test_operations_that_create_nothing_change_nothing(operation: str) -> None:
    pod = pod_document(annotations=EIGHT)

    assert plan_admission(pod, operation=operation, options=AdmissionOptions()) == Admitted()


def test_a_static_pod_stays_as_it_is_and_is_warned_about() -> None:
    pod = pod_document(container(gpu=1), annotations={keys.MIRROR: "hash"}, nodeName="n1")

    assert plan(pod) == Admitted(warnings=("a static pod is not placed by Vramline, whatever it asks for",))


def test_an_annotation_with_a_typing_error_is_warned_about() -> None:
    pod = pod_document(annotations={"vramline.io/vrma": "8Gi"})

    assert plan(pod) == Admitted(warnings=("annotation vramline.io/vrma is not known and has no effect",))


# ── changed ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_patch_of_a_small_pod_whole() -> None:
    assert plan(pod_document({"name": "main"}, annotations=EIGHT)) == Admitted(
        patch=(
            PatchOperation("/spec/schedulerName", "vramline"),
            PatchOperation("/metadata/annotations/vramline.io~1ask", SEAL),
            PatchOperation("/spec/containers/0/resources", {"limits": MANAGED, "requests": MANAGED}),
            PatchOperation("/spec/containers/0/env", [ENTRY]),
        )
    )


def test_every_container_sees_the_cards_of_the_pod() -> None:
    pod = pod_document(
        {"name": "main", "env": [{"name": "A", "value": "a"}]},
        {"name": "second"},
        annotations=EIGHT,
        initContainers=[{"name": "fetch"}, {"name": "side", "restartPolicy": "Always"}],
    )

    spec = admit(pod)["spec"]

    assert [each["env"][-1] for each in (*spec["initContainers"], *spec["containers"])] == [ENTRY] * 4
    assert spec["containers"][0]["env"][0] == {"name": "A", "value": "a"}


@pytest.mark.parametrize(
    ("env", "kept", "words"),
    [
        pytest.param([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], [ENTRY], " = 'all'", id="a value"),
        pytest.param(
            [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
            [ENTRY],
            "",
            id="a reference",
        ),
        pytest.param(
            [
                {"name": "A", "value": "a"},
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                {"name": "B", "value": "$(NVIDIA_VISIBLE_DEVICES)"},
            ],
            [{"name": "A", "value": "a"}, ENTRY, {"name": "B", "value": "$(NVIDIA_VISIBLE_DEVICES)"}],
            " = 'all'",
            id="in its place, because others may refer to it",
        ),
        pytest.param([ENTRY, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}], [ENTRY], " = '0'", id="two"),
    ],
)
def test_a_users_choice_of_cards_is_replaced_with_a_warning(
    env: list[Document], kept: list[Document], words: str
) -> None:
    pod = pod_document({"name": "main", "env": env}, annotations=EIGHT)

    assert admit(pod)["spec"]["containers"][0]["env"] == kept
    assert warnings_of(pod) == (
        f"container main: NVIDIA_VISIBLE_DEVICES{words} is replaced by the GPUs that the pod gets",
    )


@pytest.mark.parametrize(
    ("limits", "annotations", "left", "size"),
    [
        pytest.param({"gpu": 1, "gpumem": 8000}, {}, {}, MibSize(Mib(8000)), id="MiB"),
        pytest.param(
            {"gpu": 2, "gpumem": 8000, "gpucores": 30, "priority": 1}, {}, {}, MibSize(Mib(8000)), id="all"
        ),
        pytest.param({"gpumem_percentage": 50}, {}, {}, ShareSize(1, 2), id="percent"),
        pytest.param({"gpu": 1}, EIGHT, {}, MibSize(Mib(8000)), id="a device beside an annotation"),
        pytest.param({"gpu": 1}, {"gpu-fraction": "0.25"}, {}, ShareSize(1, 4), id="a share"),
        pytest.param({"gpu": 2}, {}, {"nvidia.com/gpu": 2}, UnsizedSize(), id="plain GPUs stay"),
        pytest.param({"gpu.shared": 2}, {}, {"nvidia.com/gpu.shared": 2}, UnsizedSize(), id="renamed too"),
        pytest.param({"gpu": 1, "gpucores": 30}, {}, {"nvidia.com/gpu": 1}, UnsizedSize(), id="cores go"),
        pytest.param({"gpucores": 30}, {}, {"nvidia.com/gpu": "1"}, UnsizedSize(), id="cores imply a GPU"),
        pytest.param({"gpumem_percentage": 100}, {}, {"nvidia.com/gpu": "1"}, WholeSize(), id="a whole card"),
        pytest.param(
            {"gpu.shared": 2, "gpumem_percentage": 100},
            {},
            {"nvidia.com/gpu.shared": "2"},
            WholeSize(),
            id="whole cards under the other name",
        ),
    ],
)
def test_what_kubelet_still_sees_of_the_limits(
    limits: Document, annotations: Document, left: Document, size: object
) -> None:
    pod = pod_document(
        container(limits={"cpu": "2"}, requests={"memory": "1Gi"}, **limits), annotations=annotations
    )

    stored = admit(pod)

    assert limits_of(stored) == [{"cpu": "2", **left, **MANAGED}]
    ask = ask_of(stored)
    assert ask == read_spelled_ask(msgspec.convert(pod, PodObject))
    assert ask is not None
    assert ask.size == size


def test_whole_cards_of_several_containers_are_counted_once() -> None:
    pod = pod_document(
        container("a", gpu=1, gpumem_percentage=60), container("b", gpu=1, gpumem_percentage=40)
    )

    assert limits_of(admit(pod)) == [{"nvidia.com/gpu": "1", **MANAGED}, {}]


def test_requests_go_with_their_limits() -> None:
    pod = pod_document(
        container(gpu=1, gpumem=8000, requests={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000})
    )

    assert admit(pod)["spec"]["containers"][0]["resources"] == {"limits": MANAGED, "requests": MANAGED}


@pytest.mark.parametrize(
    ("backend", "mark"),
    [(Backend.PLUGIN, "vramline.io/gpu"), (Backend.RESERVATION, "vramline.io/managed")],
)
def test_the_mark_of_another_backend_goes(backend: Backend, mark: str) -> None:
    both = {"vramline.io/managed": "1", "vramline.io/gpu": "1"}
    pod = pod_document(container(limits=both, requests=both), annotations=EIGHT)

    assert admit(pod, backend=backend)["spec"]["containers"][0]["resources"] == {
        "limits": {mark: "1"},
        "requests": {mark: "1"},
    }


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        pytest.param({"gpu": 2, "gpumem": 8000, "gpucores": 30, "priority": 1}, {}, id="MiB"),
        pytest.param({"gpu": 2}, {}, id="plain GPUs"),
        pytest.param({"gpu.shared": 2}, {}, id="renamed"),
        pytest.param({"gpu": 1, "gpumem_percentage": 100}, {}, id="a whole card"),
        pytest.param({}, {"gpu-fraction": "0.25"}, id="a share"),
    ],
)
@pytest.mark.parametrize(
    ("options", "mark"),
    [
        pytest.param({"backend": Backend.PLUGIN}, {"vramline.io/gpu": "1"}, id="our own plugin"),
        pytest.param({"makes_reservations": True}, MANAGED, id="reservation pods"),
    ],
)
def test_where_we_hold_the_cards_kubelet_sees_no_device_of_any_ask(
    limits: Document, annotations: Document, options: Document, mark: Document
) -> None:
    pod = pod_document(
        container("first", limits={"cpu": "2"}, **limits), container("second"), annotations=annotations
    )

    stored = admit(pod, **options)

    assert limits_of(stored) == [{"cpu": "2", **mark}, {}]
    assert ask_of(stored) == read_spelled_ask(msgspec.convert(pod, PodObject))
    assert plan(stored, **options) == Admitted()


@pytest.mark.parametrize(
    ("given", "policy", "stored", "warnings"),
    [
        pytest.param(None, "default", "vramline", (), id="none"),
        pytest.param("", "default", "vramline", (), id="empty"),
        pytest.param("default-scheduler", "default", "vramline", (), id="the default one"),
        pytest.param("vramline", "default", "vramline", (), id="ours"),
        pytest.param("vramline", "never", "vramline", (), id="ours by the user's own word"),
        pytest.param(
            "volcano",
            "always",
            "vramline",
            ("schedulerName volcano is replaced by vramline",),
            id="always means always",
        ),
    ],
)
def test_whom_the_pod_goes_to(given: str | None, policy: str, stored: str, warnings: tuple[str, ...]) -> None:
    pod = pod_document(annotations=EIGHT, schedulerName=given)
    options = {"scheduler_name_policy": SchedulerNamePolicy(policy)}

    assert admit(pod, **options)["spec"]["schedulerName"] == stored
    assert warnings_of(pod, **options) == warnings


@pytest.mark.parametrize(
    ("given", "policy"), [("volcano", "default"), ("volcano", "never"), ("default-scheduler", "never")]
)
@pytest.mark.parametrize("amount", ["8000", "8 GB"], ids=["well said", "badly said"])
def test_a_pod_of_another_scheduler_stays_as_it_is(given: str, policy: str, amount: str) -> None:
    pod = pod_document(annotations={"vramline.io/vram": amount}, schedulerName=given)

    assert plan(pod, scheduler_name_policy=SchedulerNamePolicy(policy)) == Admitted(
        warnings=(f"schedulerName {given} is kept: Vramline does not place this pod",)
    )


def test_a_pod_of_another_scheduler_without_an_ask_is_not_warned_about() -> None:
    assert plan(pod_document(schedulerName="volcano")) == Admitted()


def test_the_name_of_our_scheduler_may_be_another() -> None:
    pod = pod_document(annotations=EIGHT)

    assert admit(pod, scheduler_name="gpu")["spec"]["schedulerName"] == "gpu"


def test_a_label_of_another_system_does_not_let_a_pod_pass() -> None:
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": "g"}
    stored = admit(pod_document(container(gpu=1), labels=labels))

    assert stored["spec"]["schedulerName"] == "vramline"
    assert ask_of(stored) is not None


# ── refused ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(
            pod_document(annotations={"gpu-memory": "8Gi"}),
            "Pod ns/p: annotation gpu-memory = '8Gi': counts MiB and takes no unit; accepted: 8192 for 8Gi",
            id="a malformed ask",
        ),
        pytest.param(
            pod_document(container(gpumem=4000), annotations=EIGHT),
            "Pod ns/p: annotation vramline.io/vram and limit nvidia.com/gpumem: both ask for GPU memory;"
            " accepted: one of them",
            id="a contradictory ask",
        ),
        pytest.param(
            pod_document(annotations={"gpu-memory": "0"}, meta={"name": None, "generateName": "web-5d9c-"}),
            "Pod ns/web-5d9c-*: annotation gpu-memory = '0': must be more than 0;"
            " accepted: a whole number of MiB, such as 8000",
            id="a pod that has no name yet",
        ),
        pytest.param(
            pod_document(annotations={keys.ALLOCATION: "{}"}),
            "Pod ns/p: annotation vramline.io/allocation: is written by Vramline alone;"
            " accepted: no such annotation",
            id="a forged allocation",
        ),
        pytest.param(
            pod_document(annotations={**EIGHT, keys.VISIBLE_DEVICES: "GPU-1"}),
            "Pod ns/p: annotation vramline.io/visible-devices: is written by Vramline alone;"
            " accepted: no such annotation",
            id="forged cards",
        ),
        pytest.param(
            pod_document(annotations={keys.ASK: SEAL}),
            "Pod ns/p: annotation vramline.io/ask: is written by Vramline alone;"
            " accepted: no such annotation",
            id="a forged seal",
        ),
        pytest.param(
            pod_document(
                container(limits=MANAGED), annotations={keys.ASK: SEAL, "vramline.io/vram": "80000"}
            ),
            "Pod ns/p: annotation vramline.io/ask: contradicts limits or other annotations of the pod;"
            " accepted: no such annotation",
            id="a seal beside another ask",
        ),
        pytest.param(
            pod_document(
                container(limits=MANAGED), annotations={keys.ASK: SEAL, "nvidia.com/use-gputype": "A100"}
            ),
            "Pod ns/p: annotation vramline.io/ask: contradicts limits or other annotations of the pod;"
            " accepted: no such annotation",
            id="a seal beside another choice",
        ),
        pytest.param(
            pod_document(
                container(limits=MANAGED), annotations={keys.ASK: '{"gpus":0,"size":{"type":"whole"}}'}
            ),
            "Pod ns/p: annotation vramline.io/ask.gpus = 0: is out of bounds; accepted: 1 to 65535",
            id="a seal that makes no sense",
        ),
        pytest.param(
            pod_document(container(gpu=1), nodeName="n1"),
            "Pod ns/p: spec.nodeName = 'n1': takes GPUs without asking the scheduler;"
            " accepted: no nodeName; a nodeSelector on kubernetes.io/hostname chooses a node",
            id="a node chosen past the scheduler",
        ),
        pytest.param(
            pod_document(container(gpu=1), nodeName="n1", schedulerName="volcano"),
            "Pod ns/p: spec.nodeName = 'n1': takes GPUs without asking the scheduler;"
            " accepted: no nodeName; a nodeSelector on kubernetes.io/hostname chooses a node",
            id="past any scheduler",
        ),
        pytest.param(
            {"metadata": {"annotations": {"gpu-memory": 8000}}},
            "Pod: metadata.annotations[gpu-memory] = 8000: must be text;"
            ' accepted: the value in quotes, "8000"',
            id="a number for text",
        ),
    ],
)
def test_refusals_whole(pod: Document, message: str) -> None:
    assert plan(pod) == Refused(message)


# ── asked again ──────────────────────────────────────────────────────────────────────────────────────


def test_a_container_that_another_webhook_injects_later_gets_the_cards_too() -> None:
    stored = admit(pod_document(container(gpu=1, gpumem=8000)))
    stored["spec"]["containers"].append({"name": "injected", "image": "i"})

    assert plan(stored) == Admitted(patch=(PatchOperation("/spec/containers/1/env", [ENTRY]),))


def test_what_the_api_server_fills_in_is_no_reason_to_change_anything() -> None:
    stored = admit(pod_document({"name": "main"}, annotations=EIGHT))
    del stored["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"]

    assert plan(stored) == Admitted()


# ── ephemeral containers ─────────────────────────────────────────────────────────────────────────────


def debugged(*names: str, annotations: Document) -> Document:
    all_cards = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    ephemeral = [{"name": name, "env": all_cards} for name in names]
    return pod_document(annotations=annotations, ephemeralContainers=ephemeral)


def test_a_new_ephemeral_container_sees_the_cards_of_its_pod() -> None:
    sealed = {keys.ASK: SEAL}
    outcome = plan_admission(
        debugged("old", "new", annotations=sealed),
        old_pod=debugged("old", annotations=sealed),
        operation="UPDATE",
        options=AdmissionOptions(),
    )

    assert outcome == Admitted(
        patch=(PatchOperation("/spec/ephemeralContainers/1/env", [ENTRY]),),
        warnings=("container new: NVIDIA_VISIBLE_DEVICES = 'all' is replaced by the GPUs that the pod gets",),
    )


def test_an_ephemeral_container_of_a_pod_that_is_not_ours_stays_as_it_is() -> None:
    pod = debugged("new", annotations={})

    assert plan_admission(pod, operation="UPDATE", options=AdmissionOptions()) == Admitted()


# ── KAI's variable ───────────────────────────────────────────────────────────────────────────────────
PORTION = {
    "name": "GPU_PORTION",
    "valueFrom": {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['vramline.io/gpu-portion']"}
    },
}


@pytest.mark.parametrize("spelling", [{"gpu-memory": "8000"}, {"gpu-fraction": "0.5"}], ids=["MiB", "share"])
def test_whoever_asks_in_kais_words_is_told_its_portion_in_kais_variable(spelling: Document) -> None:
    stored = admit(pod_document(container(), annotations=spelling))

    assert stored["spec"]["containers"][0]["env"] == [ENTRY, PORTION]


def test_a_portion_that_the_pod_says_itself_is_left_alone() -> None:
    own = {"name": "GPU_PORTION", "value": "0.7"}
    stored = admit(pod_document({**container(), "env": [own]}, annotations={"gpu-memory": "8000"}))

    assert stored["spec"]["containers"][0]["env"] == [own, ENTRY]


def test_whoever_asks_in_other_words_is_told_nothing_of_it() -> None:
    stored = admit(pod_document(container(), annotations=EIGHT))

    assert stored["spec"]["containers"][0]["env"] == [ENTRY]


def test_the_portion_is_sealed() -> None:
    annotations = {"gpu-memory": "8000", "vramline.io/gpu-portion": "1"}
    refused = plan(pod_document(container(), annotations=annotations))

    assert isinstance(refused, Refused)
    assert "annotation vramline.io/gpu-portion: is written by Vramline alone" in refused.message
