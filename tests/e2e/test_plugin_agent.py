"""The device plugin inside the real agent: real NVML bindings on a stand-in library, a real kubelet."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from controlplane.agent import RunningAgent, agent_token, install_agent, run_agent
from controlplane.kubernetes import wait_for_pod
from controlplane.plane import ControlPlane
from e2e.plugin_world import PODS, SlotNode, admitted, container_of, start_schedulers, waiting_for
from fakenvml import Card, FakeNvml
from realnode.machine import Programs
from realnode.node import real_node
from realnode.pods import is_running

SLOTS = 16
CARDS = ("GPU-a", "GPU-b")


@dataclass(frozen=True)
class AgentNode(SlotNode):
    """A node whose agent offers slots; what its cards say stands in a file."""

    nvml: FakeNvml

    def occupy(self, uuid: str, mib: int) -> None:
        """Let this very process, which is in no pod, use so much of one card, and nobody use the other."""
        self.nvml.set(
            *(
                Card(each, total=24_000, used=mib, processes={os.getpid(): mib})
                if mib and each == uuid
                else Card(each, total=24_000)
                for each in CARDS
            )
        )

    @contextmanager
    def agent(self) -> Iterator[RunningAgent]:
        """Run `vramline agent` with its shipped rights, until the block ends and the slots are gone."""
        folder = self.node.kubelet_folder
        options = ["--pod-resources", str(folder / "pod-resources" / "kubelet.sock")]
        options += ["--device-plugins", str(folder / "device-plugins")]
        env = {"VRAMLINE_BACKEND": "plugin", "VRAMLINE_SLOTS_PER_CARD": str(SLOTS // len(CARDS))}
        token = agent_token(self.admin, self.node.name)
        with run_agent(
            self.node.plane, self.node.name, self.nvml, token=token, options=options, env=env
        ) as agent:
            yield agent
        self.wait_for_resources(SLOTS, 0)


@pytest.fixture(scope="module")
def world(
    plane: ControlPlane, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentNode]:
    with plane.client() as admin:
        install_agent(admin, "--with-plugin")
        with real_node(plane, programs) as node, start_schedulers(plane):
            world = AgentNode(admin, node, FakeNvml(tmp_path_factory.mktemp("cards")))
            world.occupy("", 0)
            yield world


def test_a_node_offers_slots_as_long_as_its_agent_runs(world: AgentNode) -> None:
    with world.agent() as agent:
        world.wait_for_resources(SLOTS, SLOTS)
        world.create(admitted("worker", 16_000))
        before = wait_for_pod(world.admin, "default", "worker", is_running)
    assert list((world.node.kubelet_folder / "device-plugins").glob("vramline*")) == []
    assert "Traceback" not in agent.child.log.read_text()

    with world.agent():
        world.wait_for_resources(SLOTS, SLOTS)
        after = world.admin.get(f"{PODS}/worker").json()
        assert container_of(after) == container_of(before)
        assert [each.pod for each in world.held()] == ["worker"]
        assert agent.has_logged("plugin.registered")


def test_a_restart_waits_until_a_stranger_has_left_the_card(world: AgentNode) -> None:
    with world.agent() as agent:
        world.wait_for_resources(SLOTS, SLOTS)
        world.create(admitted("restarts", 6_000))
        wait_for_pod(world.admin, "default", "restarts", is_running)
        card = world.promised()["default/restarts"]

        world.occupy(card, 20_000)
        world.end_container("restarts")
        pod = wait_for_pod(world.admin, "default", "restarts", lambda pod: "lacks" in waiting_for(pod)[1])
        assert f"{card} lacks " in waiting_for(pod)[1]
        assert "− unmanaged 20,000 =" in waiting_for(pod)[1]

        world.occupy("", 0)
        started = wait_for_pod(world.admin, "default", "restarts", is_running)
        assert container_of(started)[1] == 1
        assert re.search(r'vramline_agent_starts_total\{outcome="refused"\} [1-9]', agent.figures())


def test_a_lost_card_takes_its_slots_along(world: AgentNode) -> None:
    with world.agent():
        world.wait_for_resources(SLOTS, SLOTS)
        world.nvml.set(Card(CARDS[0], total=24_000), Card(CARDS[1], total=24_000, lost=True))
        world.wait_for_resources(SLOTS, SLOTS // 2)
