"""The plugin's life beside a kubelet: registration, restarts, health, and what it answers."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.plugin_world import NodeWorld, card, claim, registered, run, until, used_by
from agent.stand_in_kubelet import StandInKubelet
from vramline.model.gpu import Health
from vramline.wire.report_v1alpha1 import ReportedGpu

Story = Callable[[StandInKubelet, NodeWorld], Awaitable[None]]


def sockets_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.sock")}


def silent(used: int) -> ReportedGpu:
    """A card that lists no processes."""
    return ReportedGpu(uuid="GPU-a", total_mib=24_000, used_mib=used)


def play(story: Story, folder: Path, world: NodeWorld | None = None, *, per_card: int = 4) -> None:
    """Run a story beside a kubelet that runs already."""

    async def whole() -> None:
        there = world or NodeWorld()
        async with run(there, folder, per_card=per_card) as kubelet:
            await kubelet.start()
            await story(kubelet, there)

    asyncio.run(whole())


# ── registration ─────────────────────────────────────────────────────────────────────────────────────


def test_it_registers_under_its_own_resource_and_asks_for_the_last_look(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, _world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        request = kubelet.registered[0]
        assert (request.version, request.resource_name) == ("v1beta1", "vramline.io/gpu")
        assert request.options == await plugin.options()
        assert request.options.pre_start_required
        assert request.options.get_preferred_allocation_available

    play(story, tmp_path)


def test_it_waits_for_kubelet(tmp_path: Path) -> None:
    async def whole() -> None:
        async with run(NodeWorld(), tmp_path) as kubelet:
            await asyncio.sleep(0)
            await kubelet.start()
            await registered(kubelet)

    asyncio.run(whole())


def test_it_offers_nothing_before_the_cards_were_seen(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, world: NodeWorld) -> None:
        assert kubelet.registered == []
        world.cards = (card(), card("GPU-b"))
        plugin = await registered(kubelet)
        assert len(plugin.devices) == 8

    play(story, tmp_path, NodeWorld(cards=None))


def test_a_restarted_kubelet_hears_from_it_again_on_a_new_socket(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, _world: NodeWorld) -> None:
        await registered(kubelet)
        await kubelet.stop()
        await kubelet.start()
        plugin = await registered(kubelet, 2)
        first, second = (request.endpoint for request in kubelet.registered)
        assert first != second
        assert len(plugin.devices) == 4
        assert sockets_in(tmp_path) == {"kubelet.sock", second}

    play(story, tmp_path)


def test_a_kubelet_that_stops_watching_is_asked_again(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, _world: NodeWorld) -> None:
        await registered(kubelet)
        await kubelet.hang_up()
        await registered(kubelet, 2)

    play(story, tmp_path)


def test_a_socket_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, _world: NodeWorld) -> None:
        await registered(kubelet)
        (tmp_path / kubelet.registered[0].endpoint).unlink()
        await registered(kubelet, 2)

    play(story, tmp_path)


def test_a_refused_registration_is_tried_again(tmp_path: Path) -> None:
    async def whole() -> None:
        async with run(NodeWorld(), tmp_path) as kubelet:
            kubelet.refuses = True
            await kubelet.start()
            await until(lambda: kubelet.refusals > 0)
            kubelet.refuses = False
            await registered(kubelet)

    asyncio.run(whole())


def test_it_leaves_no_socket_behind_and_removes_old_ones(tmp_path: Path) -> None:
    (tmp_path / "vramline-gpu-17.sock").touch()
    (tmp_path / "somebody-else.sock").touch()

    async def whole() -> None:
        async with run(NodeWorld(), tmp_path) as kubelet:
            await until(lambda: not (tmp_path / "vramline-gpu-17.sock").exists())
            assert (tmp_path / "somebody-else.sock").exists()
            await kubelet.start()
            await registered(kubelet)

    asyncio.run(whole())
    assert list(tmp_path.glob("vramline*")) == []


def test_grpc_is_loaded_by_nobody_else() -> None:
    code = "import sys, vramline.cli.agent, vramline.serve.scheduler; print('grpc' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "False\n"


# ── slots ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("health", "well"),
    [
        pytest.param(Health.UNHEALTHY, 4, id="unhealthy"),
        pytest.param(Health.PROBATION, 4, id="on probation"),
        pytest.param(Health.SUSPECT, 8, id="suspect only"),
    ],
)
def test_a_sick_card_takes_its_share_of_the_slots_and_gives_it_back(
    tmp_path: Path, health: Health, well: int
) -> None:
    async def story(kubelet: StandInKubelet, world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        assert Counter(plugin.devices.values()) == {"Healthy": 8}
        world.cards = (card(health=health), card("GPU-b"))
        await until(lambda: Counter(plugin.devices.values())["Healthy"] == well)
        assert len(plugin.devices) == 8
        assert list(plugin.devices.values())[:4] == ["Healthy"] * 4
        world.cards = (card(), card("GPU-b"))
        await until(lambda: Counter(plugin.devices.values()) == {"Healthy": 8})

    play(story, tmp_path, NodeWorld(cards=(card(), card("GPU-b"))))


def test_a_card_that_vanishes_leaves_unhealthy_slots(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        world.cards = (card(),)
        await until(lambda: Counter(plugin.devices.values()) == {"Healthy": 4, "Unhealthy": 4})

    play(story, tmp_path, NodeWorld(cards=(card(), card("GPU-b"))))


def test_figures_alone_are_no_news_to_kubelet(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        world.cards = (card("GPU-a", used_by(None, 5_000)), card("GPU-b"))
        world.cards = (*world.cards, card("GPU-c"))
        await until(lambda: len(plugin.devices) == 12)
        assert plugin.lists == 2

    play(story, tmp_path, NodeWorld(cards=(card(), card("GPU-b"))))


def test_low_numbers_are_handed_out_first(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, _world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        available = ["slot-00003", "slot-00001", "slot-00002"]
        assert await plugin.prefer(available, [], 1) == ["slot-00001"]
        assert await plugin.prefer(available, ["slot-00003"], 2) == ["slot-00003", "slot-00001"]

    play(story, tmp_path)


# ── Allocate and PreStartContainer ───────────────────────────────────────────────────────────────────


def test_allocate_says_nothing_about_any_pod_and_never_refuses(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, _world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        answer = await plugin.allocate(["slot-00000"], ["slot-00001"])
        assert [each.SerializeToString() for each in answer.container_responses] == [b"", b""]

    play(story, tmp_path, NodeWorld(cards=(card("GPU-a", used_by(None, 24_000)),), claims=None, slots=None))


def test_a_start_is_refused_with_the_arithmetic_and_agreed_to_later(tmp_path: Path) -> None:
    async def story(kubelet: StandInKubelet, world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        await plugin.allocate(["slot-00000"])
        assert await plugin.start("slot-00000") == (
            "FAILED_PRECONDITION: GPU-a lacks 2,000 MiB of the 16,000 promised to ml/a:"
            " usable 24,000 − held 16,000 − unmanaged 10,000 = −2,000 MiB"
        )
        world.cards = (card(),)
        assert await plugin.start("slot-00000") == ""

    play(
        story,
        tmp_path,
        NodeWorld(
            cards=(card("GPU-a", used_by(None, 10_000)),),
            claims=(claim("ml/a", 16_000),),
            slots={"slot-00000": "ml/a"},
        ),
    )


def test_only_a_slot_that_never_started_is_new(tmp_path: Path) -> None:
    """Without a process list 16,000 MiB in use may be the pod's own, but not before its first start."""

    async def story(kubelet: StandInKubelet, world: NodeWorld) -> None:
        plugin = await registered(kubelet)
        await plugin.allocate(["slot-00000"])
        assert "unmanaged at least 16,000" in await plugin.start("slot-00000")
        world.cards = (silent(0),)
        assert await plugin.start("slot-00000") == ""
        world.cards = (silent(16_000),)
        assert await plugin.start("slot-00000") == ""

    play(
        story,
        tmp_path,
        NodeWorld(cards=(silent(16_000),), claims=(claim("ml/a", 16_000),), slots={"slot-00000": "ml/a"}),
    )
