import pytest

from vramline.errors import TransientError
from vramline.kube.failures import (
    AmbiguousError,
    ApiError,
    ConflictError,
    DeniedError,
    GoneError,
    InvalidError,
    NotFoundError,
    Status,
    ThrottledError,
    UnavailableError,
    failure_of,
    read_status,
)


@pytest.mark.parametrize(
    ("code", "of_read", "of_write"),
    [
        (400, InvalidError, InvalidError),
        (401, DeniedError, DeniedError),
        (403, DeniedError, DeniedError),
        (404, NotFoundError, NotFoundError),
        (409, ConflictError, ConflictError),
        (410, GoneError, GoneError),
        (413, InvalidError, InvalidError),
        (422, InvalidError, InvalidError),
        (429, ThrottledError, ThrottledError),
        (500, UnavailableError, AmbiguousError),
        (502, UnavailableError, AmbiguousError),
        (503, UnavailableError, AmbiguousError),
        (504, UnavailableError, AmbiguousError),
    ],
)
def test_every_status_has_its_meaning(code: int, of_read: type[ApiError], of_write: type[ApiError]) -> None:
    assert type(failure_of("GET /x", code, Status(), is_write=False)) is of_read
    assert type(failure_of("PUT /x", code, Status(), is_write=True)) is of_write


def test_only_what_was_surely_not_done_may_simply_be_tried_again() -> None:
    kinds = [failure_of("PUT /x", code, Status(), is_write=True) for code in range(400, 600)]

    assert {error.code for error in kinds if isinstance(error, TransientError)} == {429}


def test_the_message_says_call_code_and_what_the_server_said() -> None:
    status = read_status(b'{"kind":"Status","code":409,"reason":"Conflict","message":"changed meanwhile"}')

    assert (
        str(failure_of("PUT /n1", 409, status, is_write=True)) == "PUT /n1: 409 Conflict: changed meanwhile"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"404 page not found\n", "404 page not found", id="plain text"),
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"\xff\xfe", "��", id="no text at all"),
        pytest.param(b'{"message": 7}', '{"message": 7}', id="another kind of JSON"),
        pytest.param(b"x" * 10_000, "x" * 400, id="a whole page"),
    ],
)
def test_an_answer_that_is_no_status_is_repeated(body: bytes, message: str) -> None:
    assert read_status(body).message == message


@pytest.mark.parametrize(
    ("header", "body", "wait_s"),
    [
        pytest.param(None, b"{}", 1.0, id="nothing said"),
        pytest.param(None, b'{"details":{"retryAfterSeconds":3}}', 3.0, id="in the body"),
        pytest.param(5.0, b'{"details":{"retryAfterSeconds":3}}', 5.0, id="the header wins"),
        pytest.param(0.0, b"{}", 0.0, id="at once"),
    ],
)
def test_when_to_come_back(header: float | None, body: bytes, wait_s: float) -> None:
    error = failure_of("GET /x", 429, read_status(body), is_write=False, retry_after_s=header)

    assert isinstance(error, ThrottledError)
    assert error.retry_after_s == wait_s


def test_a_taken_name_is_a_conflict_of_its_own() -> None:
    taken = failure_of("POST /x", 409, Status(reason="AlreadyExists"), is_write=True)
    changed = failure_of("PUT /x", 409, Status(reason="Conflict"), is_write=True)

    assert isinstance(taken, ConflictError)
    assert isinstance(changed, ConflictError)
    assert (taken.already_exists, changed.already_exists) == (True, False)
