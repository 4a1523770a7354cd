"""A board whose GPU has no memory of its own: one pool, whoever takes from it."""

import asyncio
import re
from pathlib import Path

import pytest

from fakenvml import FakeNvml
from probes.machines import Machine
from vramline.agent.once import look_once
from vramline.agent.reporting import NodeFacts
from vramline.model.claim import Claim, ClaimState
from vramline.model.law import Account, take_account
from vramline.units import Mib
from vramline.wire.kubernetes import NodeObject, ObjectMeta
from vramline.wire.nodes import read_node

MARGIN = Mib(100)


@pytest.fixture
def board(fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name, value in fake_nvml.environment().items():
        monkeypatch.setenv(name, value)
    return Machine(fake_nvml, tmp_path / "machine")


def available(board: Machine, change_mib: int) -> None:
    """Let programs on the CPU take so much more memory (or give it back)."""
    path = board.root / "proc/meminfo"
    text = path.read_text()
    before = int(re.findall(r"MemAvailable: +(\d+)", text)[0])
    path.write_text(re.sub(r"(MemAvailable: +)\d+", rf"\g<1>{before - change_mib * 1024}", text))


def account(board: Machine, *claims: Claim) -> Account:
    """Probe, agent, report, node and law, as they follow each other."""
    facts = NodeFacts(node="board", platform="tegra")
    report = asyncio.run(look_once(facts, (board.open(),)))
    reading = read_node(NodeObject(metadata=ObjectMeta(name="board")), report)
    [card] = reading.node.gpus
    assert card.unified
    return take_account(card, claims, reading.observations[card.uuid], MARGIN)


@pytest.mark.parametrize("name", ["orin", "thor", "gb10"])
def test_what_programs_take_on_the_cpu_is_gone_for_the_gpu(board: Machine, name: str) -> None:
    board.become(name)
    before = account(board)

    available(board, 2_048)
    after = account(board)

    assert before.usable == after.usable
    assert isinstance(before.free_observed, int)
    assert after.free_observed == before.free_observed - 2_048


@pytest.mark.parametrize("name", ["orin", "thor", "gb10"])
def test_all_that_is_available_and_not_kept_for_the_host_may_be_promised(board: Machine, name: str) -> None:
    board.become(name)
    text = (board.root / "proc/meminfo").read_text()
    left = int(re.findall(r"MemAvailable: +(\d+)", text)[0]) // 1024

    found = account(board)

    # What no process holds is charged to the margin first, so that it is not subtracted twice.
    assert isinstance(found.free_observed, int)
    assert left - 1024 - MARGIN - 2 <= found.free_observed <= left - 1024


def test_a_claim_that_has_not_started_is_held_beside_what_the_host_uses(board: Machine) -> None:
    board.become("thor")
    before = account(board)
    claim = Claim(
        gpu="GPU-1", mib=Mib(8_000), pod="edge/vision", pod_uid="u1", state=ClaimState.RESERVED, epoch=1
    )

    after = account(board, claim)

    assert isinstance(before.free_observed, int)
    assert after.free_observed == before.free_observed - 8_000
