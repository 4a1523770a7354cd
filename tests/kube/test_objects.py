import msgspec
import pytest

from vramline.errors import RequestError
from vramline.kube.failures import UnavailableError
from vramline.kube.objects import (
    BIND_REQUESTS,
    LEASES,
    LEDGERS,
    NODES,
    PODS,
    REPORTS,
    ObjectKey,
    Resource,
    Stored,
    Unreadable,
    read_bookmark,
    read_item,
    read_line,
    read_page,
)

META = {"name": "p", "namespace": "team", "uid": "u1", "resourceVersion": "42"}


def encoded(**content: object) -> bytes:
    return msgspec.json.encode({"metadata": META, **content})


@pytest.mark.parametrize(
    ("resource", "key", "path"),
    [
        (PODS, ObjectKey("p", "team"), "/api/v1/namespaces/team/pods/p"),
        (NODES, ObjectKey("n1"), "/api/v1/nodes/n1"),
        (LEDGERS, ObjectKey("n1"), "/apis/vramline.io/v1alpha1/gpuledgers/n1"),
        (REPORTS, ObjectKey("n1"), "/apis/vramline.io/v1alpha1/gpureports/n1"),
        (
            BIND_REQUESTS,
            ObjectKey("p", "team"),
            "/apis/vramline.io/v1alpha1/namespaces/team/bindrequests/p",
        ),
        (LEASES, ObjectKey("l", "team"), "/apis/coordination.k8s.io/v1/namespaces/team/leases/l"),
        (NODES, ObjectKey("../secrets?x"), "/api/v1/nodes/..%2Fsecrets%3Fx"),
    ],
    ids=lambda value: value.kind if isinstance(value, Resource) else str(value),
)
def test_every_object_has_its_path(resource: Resource[object], key: ObjectKey, path: str) -> None:
    assert resource.path(key) == path


@pytest.mark.parametrize(
    ("resource", "key"), [(PODS, ObjectKey("p")), (NODES, ObjectKey("n1", "team"))], ids=["none", "one"]
)
def test_a_namespace_too_few_or_too_many_is_refused(resource: Resource[object], key: ObjectKey) -> None:
    with pytest.raises(RequestError, match=r"metadata\.namespace"):
        resource.path(key)


def test_an_object_is_known_by_key_uid_and_version() -> None:
    item = read_item(PODS, encoded(spec={"nodeName": "n1"}))

    assert isinstance(item, Stored)
    assert (item.key, item.uid, item.version) == (ObjectKey("p", "team"), "u1", 42)
    assert item.value.spec is not None
    assert item.value.spec.node_name == "n1"


@pytest.mark.parametrize(
    ("resource", "body", "problem"),
    [
        pytest.param(
            PODS,
            encoded(spec={"containers": "none"}),
            "Pod team/p: spec.containers = 'none': must be a list, not text",
            id="a pod",
        ),
        pytest.param(
            REPORTS,
            encoded(apiVersion="vramline.io/v1alpha1", kind="GpuReport", status={"gpus": [{"totalMiB": 0}]}),
            "GpuReport team/p: status.gpus[0].totalMiB = 0: must be >= 1",
            id="a report",
        ),
        pytest.param(
            LEDGERS,
            encoded(apiVersion="vramline.io/v9", kind="GpuLedger"),
            "GpuLedger team/p: apiVersion = 'vramline.io/v9': is not a version that is known here;"
            " accepted: vramline.io/v1alpha1",
            id="a ledger of the future",
        ),
    ],
)
def test_wrong_content_is_reported_for_that_object(
    resource: Resource[object], body: bytes, problem: str
) -> None:
    assert read_item(resource, body) == Unreadable(
        key=ObjectKey("p", "team"), uid="u1", version=42, problem=problem
    )


def test_one_wrong_object_does_not_spoil_the_page() -> None:
    body = msgspec.json.encode(
        {
            "metadata": {"resourceVersion": "99", "continue": "more"},
            "items": [{"metadata": META}, {"metadata": META, "spec": 7}],
        }
    )
    items, version, token = read_page(PODS, body)

    assert [type(item) for item in items] == [Stored, Unreadable]
    assert (version, token) == (99, "more")


def test_an_empty_list_may_say_null() -> None:
    assert read_page(PODS, b'{"metadata":{"resourceVersion":"7"},"items":null}') == ([], 7, "")


def test_a_bookmark_may_end_what_was_there_already() -> None:
    plain = b'{"metadata":{"resourceVersion":"5"}}'
    ending = b'{"metadata":{"resourceVersion":"6","annotations":{"k8s.io/initial-events-end":"true"}}}'

    assert (read_bookmark(plain), read_bookmark(ending)) == ((5, False), (6, True))


@pytest.mark.parametrize("line", [b"", b"{", b'{"type":"ADDED"}', b"null"])
def test_a_broken_line_breaks_the_watch(line: bytes) -> None:
    with pytest.raises(UnavailableError):
        read_line(PODS, line)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"metadata":{}}', b'{"metadata":{"resourceVersion":"new"}}'])
def test_something_that_is_no_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(UnavailableError):
        read_item(PODS, body)
    with pytest.raises(UnavailableError):
        read_page(PODS, body)
