import pytest

from vramline.wire.access_review_v1 import is_allowed, list_pods_review, page_review
from vramline.wire.token_review_v1 import Person, person_in, person_review

ANN = Person("ann", "7", ("gpu-people",), {"scopes": ["all"]})


def test_the_api_server_is_told_everything_it_knows_about_a_person() -> None:
    asked = page_review(ANN, "/vramline/dashboard")

    assert asked["kind"] == "SubjectAccessReview"
    assert asked["spec"] == {
        "user": "ann",
        "uid": "7",
        "groups": ["gpu-people"],
        "extra": {"scopes": ["all"]},
        "nonResourceAttributes": {"path": "/vramline/dashboard", "verb": "get"},
    }


def test_pods_are_asked_about_by_namespace() -> None:
    spec = list_pods_review(ANN, "mine")["spec"]

    assert isinstance(spec, dict)
    assert spec["resourceAttributes"] == {"verb": "list", "resource": "pods", "namespace": "mine"}


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        pytest.param({"status": {"allowed": True}}, True, id="allowed"),
        pytest.param({"status": {"allowed": False, "reason": "no"}}, False, id="refused"),
        pytest.param({}, False, id="silent"),
        pytest.param({"status": {"allowed": "yes"}}, False, id="odd"),
        pytest.param([], False, id="no object"),
    ],
)
def test_only_a_plain_yes_allows(answer: object, allowed: bool) -> None:
    assert is_allowed(answer) is allowed


def test_a_token_is_asked_about_for_the_api_server_itself() -> None:
    assert person_review("abc")["spec"] == {"token": "abc"}


@pytest.mark.parametrize(
    ("answer", "person"),
    [
        pytest.param(
            {"status": {"authenticated": True, "user": {"username": "ann", "groups": ["g"]}}},
            Person("ann", "", ("g",)),
            id="known",
        ),
        pytest.param({"status": {"user": {"username": "ann"}}}, None, id="not authenticated"),
        pytest.param({"status": {"authenticated": 1}}, None, id="odd"),
        pytest.param(7, None, id="no object"),
    ],
)
def test_who_is_not_authenticated_is_nobody(answer: object, person: Person | None) -> None:
    assert person_in(answer) == person
