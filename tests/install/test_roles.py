"""Rights: exactly those of the manual's table, each with a reason there; nothing by wildcard."""

import re
from collections.abc import Iterator

import pytest

from house.tree import ROOT
from install.rendered import Object, find_object, rendered
from vramline.scheduler.bell import BELL

OBJECTS = rendered("--with-plugin", "--with-dashboard", "--with-hami-lock")
ROLES = [each for each in OBJECTS if each["kind"] in {"Role", "ClusterRole"}]
HAMI_LOCK = "vramline-hami-lock"
BUILT_IN = {"system:kube-scheduler", "system:volume-scheduler"}

Right = tuple[str, str, str, str, str]
"""Account, place, object, name (empty: any), verb."""


def rights_of(role: Object) -> Iterator[Right]:
    namespace = role["metadata"].get("namespace", "")
    place = {"": "cluster", "vramline-system": "own namespace"}.get(namespace, namespace)
    for rule in role["rules"]:
        for path in rule.get("nonResourceURLs", []):
            yield from ((role["metadata"]["name"], place, path, "", verb) for verb in rule["verbs"])
        for group in rule.get("apiGroups", []):
            for resource in rule["resources"]:
                kind = f"{group}/{resource}" if group else resource
                for name in rule.get("resourceNames", [""]):
                    for verb in rule["verbs"]:
                        yield role["metadata"]["name"], place, kind, name, verb


def rights_of_the_manual() -> Iterator[Right]:
    manual = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table = manual.partition("\n## Rights\n")[2].partition("\n## ")[0]
    for line in table.splitlines():
        if not line.startswith("| vramline-"):
            continue
        account, place, objects, verbs, why = (cell.strip(" `") for cell in line.strip("|").split("|"))
        assert why, line
        kinds, _, names = f"`{objects}`".partition(" named ")
        for kind in re.findall(r"`([^`]+)`", kinds):
            for name in re.findall(r"`([^`]+)`", names) or [""]:
                yield from ((account, place, kind, name, verb) for verb in verbs.split(", "))


def test_the_roles_are_the_manuals_table() -> None:
    assert sorted(right for role in ROLES for right in rights_of(role)) == sorted(rights_of_the_manual())


@pytest.mark.parametrize("role", ROLES, ids=[f"{each['kind']} {each['metadata']['name']}" for each in ROLES])
def test_nothing_is_allowed_by_wildcard(role: Object) -> None:
    assert "*" not in [part for right in rights_of(role) for part in right]


@pytest.mark.parametrize(
    ("kind", "verbs"),
    [
        ("pods", {"update", "deletecollection"}),
        ("nodes", {"create", "update", "patch", "delete", "deletecollection"}),
        ("pods/status", {"update"}),
        ("vramline.io/gpuledgers", {"patch", "delete", "deletecollection"}),
        ("vramline.io/gpureports", {"patch", "delete", "deletecollection"}),
        ("configmaps", {"list", "watch", "create", "update", "delete", "deletecollection"}),
        ("pods/exec", {"create", "get"}),
        ("serviceaccounts/token", {"create"}),
    ],
)
def test_no_role_of_ours_allows(kind: str, verbs: set[str]) -> None:
    roles = [each for each in ROLES if each["metadata"]["name"] != HAMI_LOCK]
    allowed = {right[4] for role in roles for right in rights_of(role) if right[2] == kind}

    assert allowed & verbs == set()


def test_nodes_can_be_patched_only_where_hamis_lock_is_wanted() -> None:
    lock = [(HAMI_LOCK, "cluster", "nodes", "", verb) for verb in ("get", "patch")]
    names = {each["metadata"]["name"] for each in rendered("--with-plugin", "--with-dashboard")}

    assert list(rights_of(find_object(OBJECTS, "ClusterRole", HAMI_LOCK))) == lock
    assert HAMI_LOCK not in names
    assert "vramline-only-hami-lock" in names


def test_pods_are_made_and_deleted_among_the_reservations_alone() -> None:
    places = {
        right[:2]
        for role in ROLES
        for right in rights_of(role)
        if right[2] == "pods" and right[4] in {"create", "delete"}
    }

    assert places == {("vramline-scheduler", "vramline-reservations")}
    assert find_object(OBJECTS, "ValidatingAdmissionPolicy", "vramline-only-reservations")


def test_only_a_reservation_pod_may_patch_pods_and_a_policy_says_which_and_what_of_it() -> None:
    patching = {right[:2] for role in ROLES for right in rights_of(role) if right[2::2] == ("pods", "patch")}

    assert patching == {("vramline-reserve", "vramline-reservations")}
    assert find_object(OBJECTS, "ValidatingAdmissionPolicy", "vramline-own-reservation")


def test_secrets_are_reached_by_name_only() -> None:
    secrets = {right for role in ROLES for right in rights_of(role) if right[2] == "secrets"}

    assert {(place, name) for _, place, _, name, _ in secrets} == {("own namespace", "vramline-webhook-tls")}


def test_config_maps_are_reached_by_name_only() -> None:
    maps = {right for role in ROLES for right in rights_of(role) if right[2] == "configmaps"}

    assert {(place, name) for _, place, _, name, _ in maps} == {("vramline-agent", "vramline-ca")}


def test_accounts_are_bound_to_our_roles_and_to_what_kube_scheduler_needs() -> None:
    bound = {
        (subject["namespace"], subject["name"], each["roleRef"]["name"])
        for each in OBJECTS
        if each["kind"] in {"RoleBinding", "ClusterRoleBinding"}
        for subject in each["subjects"]
    }

    assert bound == {
        ("vramline-agent", "vramline-agent", "vramline-agent"),
        ("vramline-reservations", "vramline-reserve", "vramline-reserve"),
        *(
            ("vramline-system", "vramline-scheduler", role)
            for role in {"vramline-scheduler", HAMI_LOCK, *BUILT_IN}
        ),
    }


def test_a_token_is_mounted_only_where_a_pod_says_so() -> None:
    accounts = [each for each in OBJECTS if each["kind"] == "ServiceAccount"]

    assert [each["automountServiceAccountToken"] for each in accounts] == [False, False, False]


def test_names_in_roles_are_names_of_objects() -> None:
    leases = find_object(OBJECTS, "ConfigMap", "vramline-kube-scheduler")["data"]["kube-scheduler.yaml"]
    named = {right[3] for role in ROLES for right in rights_of(role) if right[3]}

    assert "resourceName: vramline-kube-scheduler" in leases
    assert find_object(OBJECTS, "Secret", "vramline-webhook-tls")
    assert find_object(OBJECTS, "ConfigMap", "vramline-ca")
    assert named == {
        BELL,
        "vramline",
        "vramline-ca",
        "vramline-kube-scheduler",
        "vramline-scheduler",
        "vramline-webhook-tls",
    }
