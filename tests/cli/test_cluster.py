"""gpus, nodes and explain against the demo's cluster, which stands still after a while."""

import io
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import uvicorn
import yaml
from rich.console import Console

from inference.models import LLAMA_8B
from vramline.cli.bars import MemoryBar
from vramline.cli.cluster_tables import gpus_table, nodes_table, shorten
from vramline.cli.main import main
from vramline.demo.life import LivingCluster
from vramline.demo.machines import build_nodes
from vramline.explain.cards import card_state, node_state
from vramline.explain.history import History
from vramline.model.pod import PodPhase
from vramline.scheduler.app import build_app
from vramline.scheduler.listen import open_socket
from vramline.settings import Address


def grow_cluster() -> LivingCluster:
    """A demo that has lived for two minutes of its own time."""
    clock = [1_000.0]
    life = LivingCluster(
        build_nodes(4),
        dice=random.Random(1),
        clock=lambda: clock[0],
        history=History(),
    )
    for _ in range(120):
        clock[0] += 1.0
        life.tick()
    return life


class _Server(uvicorn.Server):
    """Says when it is up, so that nobody has to wait by guessing."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@pytest.fixture(scope="module")
def life() -> LivingCluster:
    return grow_cluster()


@pytest.fixture(scope="module")
def address(life: LivingCluster) -> Iterator[str]:
    """The cluster, served on loopback from a thread."""
    listener = open_socket(Address("127.0.0.1", 0))
    app = build_app(life.cluster, life.history)
    server = _Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    assert server.up.wait(30)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    listener.close()


def names_in(life: LivingCluster, phase: PodPhase) -> list[str]:
    return [pod.key for pod in life.cluster.pods.values() if pod.phase is phase]


def test_gpus_lists_every_card_with_its_figures(
    life: LivingCluster, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpus", "--server", address]) == 0

    printed = capsys.readouterr().out
    for uuid in life.cards:
        assert f"{life.cluster.fleet.account(uuid).free:,}" in next(
            line for line in printed.splitlines() if f" {uuid} " in line
        )
    assert "█ held" in printed


@pytest.mark.parametrize(("command", "key"), [("gpus", "gpus"), ("nodes", "nodes")])
def test_json_and_yaml_say_the_same(
    command: str, key: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--server", address, "-o", "json"]) == 0
    as_json = msgspec.json.decode(capsys.readouterr().out)
    assert main([command, "--server", address, "-o", "yaml"]) == 0
    as_yaml = yaml.safe_load(capsys.readouterr().out)

    assert as_json[key] == as_yaml[key]
    assert len(as_json[key]) == {"gpus": 8, "nodes": 4}[command]


def test_the_address_may_come_from_the_environment(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VRAMLINE_SERVER", address.removeprefix("http://"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")

    assert main(["nodes"]) == 0
    assert "1 (100)" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["gpus"], ["nodes"], ["explain", "ns/p"], ["gpus", "--watch"]])
def test_a_server_that_is_not_there_is_one_line_that_says_how_to_start_one(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    assert main([*command, "--server", f"127.0.0.1:{port}"]) == 1

    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert f"127.0.0.1:{port} (connection refused)" in complaint
    assert "`vramline demo`" in complaint


@pytest.mark.parametrize("server", ["http://", "ftp://127.0.0.1", "127.0.0.1:port", "a b", "http://[::1"])
def test_an_address_that_is_none_is_refused(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--server", server]) == 2
    assert "is not an address" in capsys.readouterr().err


def test_an_answer_of_another_program_is_said_to_be_one(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpus", "--server", f"{address}/api"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_watching_refreshes_until_ctrl_c(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    naps = iter([None, None])

    def nap(_seconds: float) -> None:
        if next(naps, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr("vramline.cli.cluster.time.sleep", nap)

    assert main(["gpus", "--watch", "--server", address]) == 0
    assert "GPU-h100-010" in capsys.readouterr().out


def test_only_tables_can_be_watched(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--watch", "-o", "json", "--server", address]) == 2
    assert "-o table" in capsys.readouterr().err


# ── explain ──────────────────────────────────────────────────────────────────────────────────────────


def explain(pod: str, address: str, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["explain", pod, "--server", address, *options]) == 0
    return capsys.readouterr().out


def test_a_pending_pod_is_explained_with_arithmetic_and_what_would_help(
    life: LivingCluster, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = explain(names_in(life, PodPhase.PENDING)[0], address, capsys)

    assert "nodes fit:" in printed
    assert "−HELD" in printed
    assert "what would change that" in printed
    assert "decisions" in printed
    assert [
        line for line in printed.splitlines() if len(line) - len(line.rstrip()) > 40
    ] == []  # a pipe is not padded


def test_a_running_pod_is_explained_by_its_decision_and_its_cards(
    life: LivingCluster, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = explain(names_in(life, PodPhase.RUNNING)[0], address, capsys)

    assert "Running on " in printed
    assert "its GPUs now" in printed
    assert "when it was decided" in printed


def test_a_name_that_only_one_pod_has_needs_no_namespace(
    life: LivingCluster, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = names_in(life, PodPhase.RUNNING)[0]

    printed = explain(key.partition("/")[2], address, capsys, "-o", "json")

    assert msgspec.json.decode(printed)["pod"]["pod"] == key


def test_a_pod_that_is_gone_is_explained_from_memory(
    life: LivingCluster, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {pod.key for pod in life.cluster.pods.values()} | {
        claim.pod for claim in life.cluster.fleet.ledger
    }
    gone = next(record.pod for record in life.history.all() if record.pod not in there)

    assert "Gone" in explain(gone.partition("/")[2], address, capsys)


@pytest.mark.parametrize("pod", ["nobody", "ns/nobody", "a/b/c", "ns/", "/p", "ns/%2e%2e", "ns/\x1b[31m"])
def test_a_pod_nobody_knows_is_one_line(pod: str, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", pod, "--server", address]) == 1

    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "\x1b" not in complaint


# ── tables and bars ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [72, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(life: LivingCluster, width: int) -> None:
    fleet = life.cluster.fleet
    now = life.cluster.now()
    cards = [
        msgspec.structs.replace(
            card_state(fleet, uuid, now=now, max_age_s=90.0),
            node=f"a-rather-long-node-name-{number}",
            uuid=f"GPU-5f1e8a2c-9f0b-4c3e-8f1a-{number:012x}",
            notes=[],
        )
        for number, uuid in enumerate(life.cards)
    ]
    nodes = [node_state(fleet, name, now=now, max_age_s=90.0) for name in ("n1", "n2", "n3", "n4")]
    output = io.StringIO()
    console = Console(width=width, file=output)

    for table in (gpus_table(cards, width=width, plain=False), nodes_table(nodes, width=width, plain=False)):
        console.print(table)
    printed = output.getvalue()

    assert all(len(line) <= width for line in printed.splitlines())
    assert all(f" {card.total_mib:,} " in printed and f" {card.held_mib:,} " in printed for card in cards)


def test_who_looked_and_when_stands_below_the_table(life: LivingCluster) -> None:
    fleet, now = life.cluster.fleet, life.cluster.now()
    seen = [card_state(fleet, uuid, now=now, max_age_s=90.0) for uuid in life.cards]
    cards = [msgspec.structs.replace(card, source="agent's stream", observed_age_s=2.4) for card in seen[:2]]
    cards += [msgspec.structs.replace(seen[2], source="GpuReport", observed_age_s=31.0)]
    output = io.StringIO()

    Console(width=120, file=output).print(gpus_table(cards, width=120, plain=True))

    assert "seen  GpuReport 1, at most 31 s ago; agent's stream 2, at most 2 s ago" in output.getvalue()


@pytest.mark.parametrize(
    ("amounts", "drawn"),
    [
        pytest.param((1000, 0, 0, 0, 0), "··········", id="empty"),
        pytest.param((1000, 0, 0, 0, 100), "·········│", id="margin"),
        pytest.param((1000, 500, 0, 0, 100), "█████····│", id="held"),
        pytest.param((1000, 500, 200, 0, 100), "███▒▒····│", id="part of it releasing"),
        pytest.param((1000, 500, 200, 300, 100), "███▒▒×××·│", id="unmanaged"),
        pytest.param((1000, 1, 0, 1, 1), "█×·······│", id="a little is not nothing"),
        pytest.param((1000, 900, 0, 0, 100), "█████████│", id="exactly full"),
        pytest.param((1000, 1200, 0, 0, 100), "█████████!", id="more than it has"),
        pytest.param((0, 0, 0, 0, 0), "", id="no card"),
    ],
)
def test_a_bar_shows_every_part_by_its_own_character(amounts: tuple[int, ...], drawn: str) -> None:
    usable, held, releasing, unmanaged, margin = amounts
    bar = MemoryBar(usable=usable, held=held, releasing=releasing, unmanaged=unmanaged, margin=margin)

    assert bar.draw(10, plain=False).plain == drawn


def test_a_terminal_without_unicode_gets_a_bar_too() -> None:
    bar = MemoryBar(usable=1000, held=500, releasing=200, unmanaged=300, margin=100)

    assert bar.draw(10, plain=True).plain == "###%%xxx.|"


def test_long_names_keep_both_ends() -> None:
    assert shorten("pool-a100-spot-7e00", 10) == "pool-…7e00"


def test_fit_decides_on_the_cluster_that_is_served(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own figures: every card of the demo is of a kind that some way was tried on."""
    config = tmp_path / "config.json"
    config.write_bytes(msgspec.json.encode(LLAMA_8B))

    status = main(["fit", str(config), "--ctx", "2048", "--server", address, "-o", "json"])

    report = msgspec.json.decode(capsys.readouterr().out)
    assert status in {0, 1}
    assert {way["card"]["total_mib"] for way in report["ways"]} == {
        gpu["total_mib"] for gpu in _cards_at(address, capsys)
    }


def _cards_at(address: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, int]]:
    main(["gpus", "--server", address, "-o", "json"])
    cards: list[dict[str, int]] = msgspec.json.decode(capsys.readouterr().out)["gpus"]
    return cards
