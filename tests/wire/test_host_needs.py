"""CPU and memory by Kubernetes' arithmetic; selectors, affinity and tolerations."""

from typing import Any

import pytest

from kubernetes_builders import container, pod_object
from vramline.errors import RequestError
from vramline.model.pod import HostNeeds, SelectorTerm, Toleration
from vramline.wire.host_needs import read_host_needs
from vramline.wire.kubernetes import PodSpec

GI = 2**30


def needs(*containers: dict[str, Any], **spec: Any) -> HostNeeds:
    return read_host_needs(pod_object(*containers, **spec).spec or PodSpec(), "Pod ns/p")


def cpu(name: str, amount: Any, **fields: Any) -> dict[str, Any]:
    return container(name, requests={"cpu": amount}, **fields)


def test_a_pod_that_says_nothing_needs_nothing() -> None:
    assert needs() == HostNeeds()


@pytest.mark.parametrize(
    ("requests", "limits", "cpu_milli", "memory_bytes"),
    [
        pytest.param({"cpu": "500m", "memory": "2Gi"}, {}, 500, 2 * GI, id="requests"),
        pytest.param({}, {"cpu": 2, "memory": "1Gi"}, 2000, GI, id="limits where there is no request"),
        pytest.param({"cpu": "1"}, {"cpu": "4", "memory": "1Gi"}, 1000, GI, id="each resource by itself"),
        pytest.param({"cpu": 0}, {"cpu": 4}, 0, 0, id="a request of 0 is a request"),
        pytest.param({"cpu": 0.25, "memory": 1e9}, {}, 250, 10**9, id="YAML numbers"),
        pytest.param({"cpu": "1u", "memory": "1.5"}, {}, 1, 2, id="rounded up"),
    ],
)
def test_requests_of_one_container(
    requests: dict[str, Any], limits: dict[str, Any], cpu_milli: int, memory_bytes: int
) -> None:
    found = needs(container(requests=requests, limits=limits))

    assert (found.cpu_milli, found.memory_bytes) == (cpu_milli, memory_bytes)


@pytest.mark.parametrize(
    ("inits", "mains", "cpu_milli"),
    [
        pytest.param([], [1, 2], 3000, id="main containers add"),
        pytest.param([4], [1, 2], 4000, id="a large init container"),
        pytest.param([2, 2], [1, 2], 3000, id="init containers run one after another"),
    ],
)
def test_containers_add_up(inits: list[int], mains: list[int], cpu_milli: int) -> None:
    found = needs(
        *(cpu(f"m{i}", amount) for i, amount in enumerate(mains)),
        initContainers=[cpu(f"i{i}", amount) for i, amount in enumerate(inits)],
    )

    assert found.cpu_milli == cpu_milli


def test_a_sidecar_counts_with_all_that_start_after_it() -> None:
    before, sidecar, after = cpu("before", 4), cpu("side", 1, restartPolicy="Always"), cpu("after", 3.5)

    assert needs(cpu("main", 2), initContainers=[before, sidecar]).cpu_milli == 4000
    assert needs(cpu("main", 2), initContainers=[before, sidecar, after]).cpu_milli == 4500
    assert needs(cpu("main", 5), initContainers=[before, sidecar, after]).cpu_milli == 6000


def test_overhead_is_added() -> None:
    assert needs(cpu("main", 2), overhead={"cpu": "250m"}).cpu_milli == 2250


def test_a_request_of_the_pod_itself_replaces_those_of_its_containers() -> None:
    found = needs(cpu("main", 2), resources={"requests": {"cpu": 8}, "limits": {"memory": "1Gi"}})

    assert (found.cpu_milli, found.memory_bytes) == (8000, GI)


def test_containers_that_request_too_much_together_are_refused() -> None:
    with pytest.raises(RequestError, match=r"requests\.memory in all: is too large to be true"):
        needs(container(requests={"memory": "1Pi"}), container(requests={"memory": "1"}))


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        (
            {"cpu": "two"},
            (
                "container main: requests.cpu = 'two': is not a Kubernetes quantity;"
                " accepted: a Kubernetes quantity, such as 2, 500m or 4Gi"
            ),
        ),
        ({"memory": "-1Gi"}, "container main: requests.memory = '-1Gi': must not be negative"),
        ({"memory": "1e99"}, "container main: requests.memory = '1e99': is too large to be true"),
        (
            {"cpu": float("inf")},
            (
                "container main: requests.cpu = inf: is not a Kubernetes quantity;"
                " accepted: a Kubernetes quantity, such as 2, 500m or 4Gi"
            ),
        ),
    ],
)
def test_a_malformed_amount_is_refused(requests: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        needs(container(requests=requests))

    assert str(caught.value) == f"Pod ns/p: {message}"


# ── selectors ────────────────────────────────────────────────────────────────────────────────────────


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


NEVER = SelectorTerm("", "In", ())


def test_the_node_selector_is_kept() -> None:
    assert needs(nodeSelector={"zone": "a"}).node_selector == {"zone": "a"}


@pytest.mark.parametrize(
    ("terms", "groups", "names"),
    [
        pytest.param(
            [{"matchExpressions": [term("a", "In", "1", "2"), term("b", "Exists")]}],
            ((SelectorTerm("a", "In", ("1", "2")), SelectorTerm("b", "Exists")),),
            ((),),
            id="all of one term",
        ),
        pytest.param(
            [{"matchExpressions": [term("a", "Gt", "5")]}, {"matchExpressions": [term("b", "DoesNotExist")]}],
            ((SelectorTerm("a", "Gt", ("5",)),), (SelectorTerm("b", "DoesNotExist"),)),
            ((), ()),
            id="one of two terms",
        ),
        pytest.param(
            [{"matchFields": [term("metadata.name", "In", "n1")]}], ((),), (("n1",),), id="a node by name"
        ),
        pytest.param(
            [{"matchFields": [term("metadata.name", "In", "n1"), term("metadata.name", "In", "n2")]}],
            ((NEVER,),),
            ((),),
            id="two names at once match nothing",
        ),
        pytest.param([{}], ((NEVER,),), ((),), id="an empty term matches nothing"),
    ],
)
def test_required_node_affinity(terms: list[Any], groups: Any, names: Any) -> None:
    found = needs(affinity=affinity(*terms))

    assert (found.affinity, found.affinity_names) == (groups, names)


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        (
            term("a", "Like", "x"),
            (
                "node affinity on a = 'Like': is not an operator;"
                " accepted: In, NotIn, Exists, DoesNotExist, Gt, Lt"
            ),
        ),
        (
            term("a", "In"),
            "node affinity on a = 0: is not the number of values that In takes; accepted: 1 or more",
        ),
        (
            term("a", "Exists", "x"),
            "node affinity on a = 1: is not the number of values that Exists takes; accepted: 0",
        ),
        (
            term("a", "Gt", "1", "2"),
            "node affinity on a = 2: is not the number of values that Gt takes; accepted: 1",
        ),
        (term("a", "Lt", "x"), "node affinity on a = 'x': is not a whole number"),
    ],
)
def test_malformed_affinity_is_refused(requirement: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        needs(affinity=affinity({"matchExpressions": [requirement]}))

    assert str(caught.value) == f"Pod ns/p: {message}"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, Toleration("", "Exists", "", "")),
        ({"key": "a", "value": "b"}, Toleration("a", "Equal", "b", "")),
        (
            {"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5},
            Toleration("a", "Exists", "", "NoSchedule"),
        ),
    ],
)
def test_tolerations(toleration: dict[str, Any], expected: Toleration) -> None:
    assert needs(tolerations=[toleration]).tolerations == (expected,)


@pytest.mark.parametrize("toleration", [{"value": "x"}, {"key": "a", "operator": "Likes"}])
def test_a_malformed_toleration_is_refused(toleration: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"Pod ns/p: toleration = .* is not understood"):
        needs(tolerations=[toleration])
