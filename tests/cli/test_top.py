"""`vramline top` on a real demo, driven by keys."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator

import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from cli.demos import running_demo
from vramline.bench.ports import free_port
from vramline.cli.client import Client
from vramline.cli.main import main
from vramline.cli.top_view import Picture, TopView, take_picture

WAIT_S = 60.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A demo in which some pods wait already."""
    with running_demo("--quiet", "--speed", "10", "--seed", "1") as (_, found):
        yield found


def words_in(view: TopView, selector: str) -> str:
    """Return what a part of the screen says."""
    part = view.query_one(selector, Static)
    return "\n".join(line.text for line in part.render_lines(part.region.reset_offset))


def rows_of(view: TopView) -> list[list[str]]:
    table = view.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


async def until(pilot: Pilot[None], is_so: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline, what
        await pilot.pause(0.05)


Act = Callable[[TopView, Pilot[None]], Coroutine[object, object, None]]


def play(address: str, act: Act, size: tuple[int, int] = (150, 45)) -> None:
    async def live() -> None:
        with Client(address) as source:
            view = TopView(source, every_s=0.5)
            async with view.run_test(size=size) as pilot:
                await until(pilot, lambda: bool(rows_of(view)), "pods are listed")
                await act(view, pilot)

    asyncio.run(live())


def test_gpus_pods_and_an_explanation_are_on_the_screen(address: str) -> None:
    async def act(view: TopView, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "asks" in words_in(view, "#story"), "a pod is explained")
        await until(pilot, lambda: view._chosen in words_in(view, "#story"), "it is the chosen one")
        assert re.search(r"4 nodes +8 GPUs .* pods wait", words_in(view, "#head"))
        assert "GPU-h100-010" in words_in(view, "#cards")

    play(address, act)


def test_pods_that_wait_come_first(address: str) -> None:
    async def act(view: TopView, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: any(row[1] == "Pending" for row in rows_of(view)), "a pod waits")
        statuses = [row[1] for row in rows_of(view)]
        assert statuses == sorted(statuses, key=lambda status: status != "Pending")

    play(address, act)


def test_arrows_choose_a_pod_and_the_choice_stays_with_it(address: str) -> None:
    async def act(view: TopView, pilot: Pilot[None]) -> None:
        await pilot.press("end")
        await until(
            pilot, lambda: view._chosen == rows_of(view)[-1][0] or view._chosen != "", "one is chosen"
        )
        chosen = view._chosen
        await until(pilot, lambda: chosen in words_in(view, "#story"), "it is explained")
        for _ in range(3):
            view.action_refresh_now()
            await pilot.pause(0.3)
        assert view._chosen == chosen or chosen not in {row[0] for row in rows_of(view)}

    play(address, act)


def test_keys_show_nodes_filter_and_pause(address: str) -> None:
    async def act(view: TopView, pilot: Pilot[None]) -> None:
        await pilot.press("n")
        await until(pilot, lambda: "LARGEST" in words_in(view, "#cards"), "nodes are listed")
        await pilot.press("g")
        await until(pilot, lambda: "GPU-h100-010" in words_in(view, "#cards"), "GPUs are listed")

        await pilot.press("slash", *"n2")
        await until(pilot, lambda: "GPU-h100-010" not in words_in(view, "#cards"), "others are hidden")
        assert "GPU-l40s-020" in words_in(view, "#cards")
        assert all("n2" in row[2] or "n2" in row[0] for row in rows_of(view))
        await pilot.press("escape")
        await until(pilot, lambda: "GPU-h100-010" in words_in(view, "#cards"), "all are back")
        assert view.query_one(Input).value == ""

        await pilot.press("space")
        await until(pilot, lambda: "PAUSED" in words_in(view, "#head"), "it says so")
        picture = view._picture
        view._take(Picture())  # what was asked for before, and comes only now
        await pilot.pause(0.6)
        assert view._picture is picture

    play(address, act)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (220, 60)], ids=["tiny", "usual", "large"])
def test_every_size_of_terminal_has_room_for_all_parts(address: str, size: tuple[int, int]) -> None:
    async def act(view: TopView, pilot: Pilot[None]) -> None:
        def parts() -> tuple[Region, Region]:
            return view.query_one("#pods").region, view.query_one("#why").region

        def are_beside() -> bool:
            pods, why = parts()
            return pods.y == why.y

        await until(pilot, lambda: are_beside() is (size[0] >= 110), "its layout")
        pods, why = parts()
        assert all(part.right <= size[0] and part.bottom <= size[1] for part in (pods, why))
        assert pods.height > 1

    play(address, act, size)


def test_a_server_that_goes_and_comes_back() -> None:
    async def live() -> None:
        listen = f"127.0.0.1:{free_port()}"  # nobody else's while the demo is away
        with (
            running_demo("--quiet", "--speed", "10", listen=listen) as (process, found),
            Client(found) as source,
        ):
            view = TopView(source, every_s=0.5)
            async with view.run_test(size=(120, 40)) as pilot:
                await until(pilot, lambda: bool(rows_of(view)), "pods are listed")
                process.kill()
                process.wait()
                await until(pilot, lambda: "disconnected" in words_in(view, "#head"), "it says so")
                assert "last seen" in words_in(view, "#head")
                assert rows_of(view)
                with running_demo("--quiet", listen=listen):
                    await until(pilot, lambda: "pods wait" in words_in(view, "#head"), "it is back")

    asyncio.run(live())


def test_nobody_there_from_the_start() -> None:
    with Client("127.0.0.1:1") as source:
        picture = take_picture(source, "")

    assert "no answer from http://127.0.0.1:1" in picture.problem


def test_without_a_terminal_it_names_the_commands_that_need_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 2
    assert "needs a terminal" in capsys.readouterr().err
