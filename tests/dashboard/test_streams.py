from collections.abc import AsyncIterator

from markupsafe import Markup

from dashboard.worlds import first_messages
from vramline.dashboard.streams import Listing, Piece, Scene


def scenes(*rounds: list[Piece | Listing]) -> Scene:
    """A page that looks like each of these in turn, and like the last one from then on."""
    left = list(rounds)

    async def scene() -> AsyncIterator[Piece | Listing]:
        for each in left.pop(0) if len(left) > 1 else left[0]:
            yield each

    return scene


def piece(name: str, text: str) -> Piece:
    return Piece(name, Markup("<p id={}>{}</p>").format(name, text))


def listing(*parts: Piece) -> Listing:
    return Listing(
        "all", list(parts), lambda some: Markup("<div>{}</div>").format(Markup().join(p.html for p in some))
    )


def test_only_what_looks_different_is_sent() -> None:
    page = scenes(
        [piece("a", "one"), piece("b", "two")],
        [piece("a", "one"), piece("b", "two")],
        [piece("a", "one"), piece("b", "three")],
    )
    first, second = first_messages(page, 2)

    assert "one" in first
    assert "two" in first
    assert "three" in second
    assert "one" not in second


def test_of_a_list_the_parts_that_changed_are_sent_alone() -> None:
    page = scenes(
        [listing(piece("a", "one"), piece("b", "two"))], [listing(piece("a", "one"), piece("b", "three"))]
    )
    first, second = first_messages(page, 2)

    assert 'hx-target="#all"' in first
    assert 'hx-target="#all"' not in second
    assert 'hx-target="#b"' in second
    assert "one" not in second


def test_a_list_in_another_order_is_sent_whole_and_once() -> None:
    page = scenes(
        [listing(piece("a", "one"), piece("b", "two"))],
        [listing(piece("b", "changed"), piece("a", "one"))],
    )
    _, second = first_messages(page, 2)

    assert second.count("<hx-partial") == 1
    assert second.index("changed") < second.index("one")


def test_lines_in_a_piece_stay_lines() -> None:
    (message,) = first_messages(scenes([piece("a", "one\ntwo")]), 1)

    assert [line.partition(": ")[0] for line in message.strip().splitlines()] == ["data", "data"]
