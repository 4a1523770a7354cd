"""Choices, values, and the order of what is installed."""

from typing import Any

import pytest

from vramline.errors import MistakesError
from vramline.wire.install_manifests import Choices, merge_values, render_manifests

DEFAULTS: dict[str, Any] = {
    "createNamespace": False,
    "image": "vramline:1",
    "schedulerName": "vramline",
    "excludedNamespaces": ["kube-system"],
    "settings": {},
    "scheduler": {"replicas": 2, "tolerations": []},
    "kubeScheduler": {"repository": "somewhere/kube-scheduler", "version": "v1.35.8"},
    "agent": {"enabled": False},
}


def test_no_choice_leaves_the_defaults_but_prints_the_namespace() -> None:
    assert merge_values(DEFAULTS, Choices()) == {**DEFAULTS, "createNamespace": True}


def test_a_choice_changes_its_value_and_no_other() -> None:
    values = merge_values(DEFAULTS, Choices(replicas=3, with_namespace=False, settings={"margin": "512Mi"}))

    assert values == {
        **DEFAULTS,
        "scheduler": {"replicas": 3, "tolerations": []},
        "settings": {"margin": "512Mi"},
    }


def test_excluded_namespaces_are_added_once() -> None:
    values = merge_values(DEFAULTS, Choices(excluded_namespaces=("mon", "kube-system", "mon")))

    assert values["excludedNamespaces"] == ["kube-system", "mon"]


def test_all_mistakes_come_at_once_with_their_option() -> None:
    choices = Choices(
        namespace="No Way",
        scheduler_name="default-scheduler",
        image="Bad Image",
        kube_scheduler_image="{{ x }}",
        kube_scheduler_version="1.35",
        excluded_namespaces=("a_b",),
    )

    with pytest.raises(MistakesError) as caught:
        merge_values(DEFAULTS, choices)

    assert [mistake.field for mistake in caught.value.mistakes] == [
        "--namespace",
        "--exclude-namespace",
        "--scheduler-name",
        "--image",
        "--kube-scheduler-image",
        "--kube-scheduler-version",
    ]


def test_objects_come_in_an_order_in_which_they_can_be_applied() -> None:
    files = {
        "templates/a.yaml": "kind: MutatingWebhookConfiguration\n---\nkind: Deployment\n---\n# no object\n",
        "templates/b.yaml": "kind: Namespace\n---\nkind: ServiceAccount\n",
        "templates/NOTES.txt": "kind: Nothing\n",
        "crds/x.yaml": "---\nkind: CustomResourceDefinition\n",
        "policies/p.yaml": "kind: NotRenderedByItself\n",
    }

    assert render_manifests(files, {}, namespace="n", version="1") == [
        "kind: Namespace\n",
        "kind: CustomResourceDefinition\n",
        "kind: ServiceAccount\n",
        "kind: Deployment\n",
        "kind: MutatingWebhookConfiguration\n",
    ]
