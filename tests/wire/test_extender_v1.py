import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramline.errors import RequestError
from vramline.wire.extender_v1 import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    NameLists,
    NodeList,
    read_asked_pod,
    read_binding_args,
    read_extender_args,
    read_preemption_args,
    version_of_asked_pod,
)
from vramline.wire.kubernetes import PodObject

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}


def encode(document: object) -> bytes:
    return msgspec.json.encode(document)


@pytest.mark.parametrize(
    "spelling", [str, str.lower, str.upper, str.swapcase], ids=["as Go writes", "lower", "upper", "swapped"]
)
def test_names_are_read_in_any_case(spelling: "type[str]") -> None:
    body = {spelling("Pod"): POD, spelling("Nodes"): None, spelling("NodeNames"): ["n2", "n1"]}

    args = read_extender_args(encode(body))

    assert read_asked_pod(args.pod) == msgspec.convert(POD, PodObject)
    assert (args.names, args.nodes) == (("n2", "n1"), None)


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        pytest.param({"metadata": {"uid": "u1", "resourceVersion": "7"}}, ("u1", "7"), id="both"),
        pytest.param({"metadata": {"uid": "u1"}}, ("u1", ""), id="no version"),
        pytest.param({"metadata": {"uid": 1}}, ("", ""), id="not a text"),
        pytest.param({}, ("", ""), id="nothing"),
    ],
)
def test_a_pod_tells_its_version_in_either_form(pod: dict[str, object], told: tuple[str, str]) -> None:
    assert version_of_asked_pod(encode(pod)) == version_of_asked_pod(pod) == told


def test_a_pod_that_breaks_the_rules_is_refused_with_its_path_in_either_form() -> None:
    pod = {"metadata": {"name": 5}}
    for form in (pod, encode(pod)):
        with pytest.raises(RequestError, match=r"metadata\.name"):
            read_asked_pod(form)


def test_full_node_objects_are_kept_as_they_came() -> None:
    node = {"metadata": {"name": "n1"}, "status": {"unknown": [1, 2]}}

    args = read_extender_args(encode({"Pod": POD, "Nodes": {"items": [node]}, "NodeNames": None}))

    assert args.names == ("n1",)
    assert args.nodes == NodeList(items=[node])


def test_the_filter_result_carries_exactly_the_names_of_the_go_struct() -> None:
    result = ExtenderFilterResult(node_names=["n1"], failed_nodes={"n2": "InsufficientVram"})

    assert msgspec.to_builtins(result) == {
        "Nodes": None,
        "NodeNames": ["n1"],
        "FailedNodes": {"n2": "InsufficientVram"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_priorities_bindings_and_preemptions_carry_exactly_the_names_of_the_go_structs() -> None:
    victims = MetaVictims(pods=[MetaPod("u1")], num_pdb_violations=1)

    assert msgspec.to_builtins(
        [
            HostPriority("n1", 7),
            ExtenderBindingResult("no"),
            ExtenderPreemptionResult(node_name_to_meta_victims={"n1": victims}),
        ]
    ) == [
        {"Host": "n1", "Score": 7},
        {"Error": "no"},
        {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}}},
    ]


def test_binding_args_are_read() -> None:
    args = read_binding_args(b'{"podname":"p","PODNAMESPACE":"ns","PodUID":"u","Node":"n1"}')

    assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == ("p", "ns", "u", "n1")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u1"}]}}}, id="by UID"),
        pytest.param({"nodeNameToMetaVictims": {"n1": {"pods": [{"uid": "u1"}]}}}, id="by UID in lower case"),
        pytest.param({"NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"uid": "u1"}}]}}}, id="full pods"),
    ],
)
def test_victims_are_read_by_uid(body: dict[str, object]) -> None:
    args = read_preemption_args(encode({"Pod": POD, **body}))

    assert args.victims == {"n1": MetaVictims(pods=[MetaPod("u1")])}


def test_a_node_without_victims_is_kept() -> None:
    args = read_preemption_args(encode({"Pod": POD, "NodeNameToVictims": {"n1": None}}))

    assert args.victims == {"n1": MetaVictims()}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"", "is not JSON", id="nothing"),
        pytest.param(b"\xff\xfe", "is not JSON", id="binary"),
        pytest.param(b"[" * 100_000, "is not JSON", id="nested without end"),
        pytest.param(b"[]", "must be a mapping, not a list", id="a list"),
        pytest.param(b"{}", "Pod: is missing", id="no pod"),
        pytest.param(b'{"Pod":7,"NodeNames":[]}', "Pod = 7: must be a mapping", id="a number for a pod"),
        pytest.param(b'{"Pod":{}}', "neither NodeNames nor Nodes", id="no nodes"),
        pytest.param(b'{"Pod":{},"NodeNames":[1]}', "NodeNames[0] = 1", id="a number for a name"),
        pytest.param(
            b'{"Pod":{},"Nodes":{"items":[{}]}}', "Nodes.items[0].metadata.name", id="a nameless node"
        ),
    ],
)
def test_a_malformed_body_is_refused_with_its_path(body: bytes, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_extender_args(body)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param({"Pod": POD, "NodeNameToVictims": []}, "NodeNameToVictims", id="a list of nodes"),
        pytest.param(
            {"Pod": POD, "NodeNameToMetaVictims": {"n": {"Pods": [{}]}}}, "[n].Pods[0].uid", id="no UID"
        ),
        pytest.param(
            {"Pod": POD, "NodeNameToMetaVictims": {"n": {"NumPDBViolations": "x"}}}, "NumPDB", id="no number"
        ),
    ],
)
def test_malformed_victims_are_refused_with_their_path(body: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_preemption_args(encode(body))

    assert words in str(refused.value)


def test_a_binding_without_a_uid_is_refused() -> None:
    with pytest.raises(RequestError, match="PodUID: is missing or empty"):
        read_binding_args(b'{"PodName":"p","PodNamespace":"ns","Node":"n"}')


TEXTS = st.text("aN:.\x00é", max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from(
    ["Pod", "pod", "Nodes", "NodeNames", "PodUID", "Node", "NodeNameToVictims", "NodeNameToMetaVictims"]
)


@given(body=st.binary(max_size=60) | st.dictionaries(NAMES, JSON, max_size=4).map(encode))
def test_whatever_is_sent_is_read_or_refused(body: bytes) -> None:
    for read in (read_extender_args, read_binding_args, read_preemption_args):
        with contextlib.suppress(RequestError):
            read(body)


def test_names_that_come_again_are_the_same_names() -> None:
    lists = NameLists()
    body = b'{"Pod":{"metadata":{}},"NodeNames":["n1","n2"]}'

    first, again = read_extender_args(body, lists).names, read_extender_args(body, lists).names

    assert first == ("n1", "n2")
    assert first is again


def test_names_that_are_expected_are_not_read() -> None:
    lists, names = NameLists(), ("n1", "n2")
    lists.expect(names)

    assert read_extender_args(b'{"Pod":{"metadata":{}},"NodeNames":["n1","n2"]}', lists).names is names


def test_only_the_last_lists_are_kept() -> None:
    lists = NameLists()
    first = lists.read(b'["n0"]')
    for number in range(1, 5):
        lists.read(f'["n{number}"]'.encode())

    assert lists.read(b'["n0"]') is not first
