"""Policies and webhook name the accounts, services and namespaces that are installed with them."""

import json
import re

from install.rendered import Object, find_object, rendered

CHOSEN = rendered(
    "--with-agent", "--namespace", "gpu", "--scheduler-name", "vram", "--exclude-namespace", "mon"
)
KINDS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration"}
POLICIES = [each for each in CHOSEN if each["kind"] in KINDS]


def excluded(each: Object) -> list[str]:
    """The namespaces that a selector somewhere in an object leaves out by name."""
    found = re.search(r'"operator": "NotIn", "values": (\[[^]]*\])', json.dumps(each))
    return [] if found is None else json.loads(found[1])


def test_the_namespaces_left_alone_are_the_chosen_ones() -> None:
    selectors = {each["metadata"]["name"]: excluded(each) for each in POLICIES if excluded(each)}

    assert set(selectors) == {"vramline", "vramline-scheduled-asks"}
    for names in selectors.values():
        assert names == [
            *("gpu", "vramline-reservations", "kube-system", "gpu-operator", "nvidia-gpu-operator"),
            *("kai-resource-reservation", "mon"),
        ]


def test_accounts_in_policies_are_installed() -> None:
    named = {
        tuple(found)
        for each in POLICIES
        for found in re.findall(r"system:serviceaccount:([\w-]+):([\w-]+)", json.dumps(each))
    }
    accounts = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in CHOSEN
        if each["kind"] == "ServiceAccount"
    }

    assert named == accounts


def test_the_scheduler_that_policies_name_is_the_chosen_one() -> None:
    variables = find_object(CHOSEN, "ValidatingAdmissionPolicy", "vramline-no-side-door")["spec"]["variables"]

    assert {"name": "schedulerName", "expression": "'vram'"} in variables


def test_every_policy_is_bound() -> None:
    names = {
        kind: {each["metadata"]["name"] for each in POLICIES if each["kind"] == kind}
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    }

    assert names["ValidatingAdmissionPolicy"] == names["ValidatingAdmissionPolicyBinding"] != set()


def test_the_webhook_calls_the_service() -> None:
    webhooks = find_object(CHOSEN, "MutatingWebhookConfiguration", "vramline")["webhooks"]
    service = find_object(CHOSEN, "Service", "vramline-webhook")

    for webhook in webhooks:
        called = webhook["clientConfig"]["service"]
        assert (called["namespace"], called["name"]) == ("gpu", service["metadata"]["name"])
        assert called["port"] in [port["port"] for port in service["spec"]["ports"]]
