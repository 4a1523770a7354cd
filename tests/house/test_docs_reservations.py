"""docs/reservations.md names every point at which the scheduler is killed."""

from e2e.reservation_kill_points import RESERVATION_POINTS
from house.tree import ROOT

PAGE = (ROOT / "docs" / "reservations.md").read_text(encoding="utf-8")


def test_every_kill_point_is_in_the_table() -> None:
    table = dict(
        line.strip("| ").split(" | ", 1)
        for line in PAGE.partition("| point |")[2].splitlines()
        if "; " in line
    )

    assert len(RESERVATION_POINTS) >= 12
    for point in RESERVATION_POINTS:
        name, moment = point.name.split(", ")
        assert moment in table[name]
