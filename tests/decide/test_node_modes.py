"""Whose mode counts: the pod's, then the node's, then the cluster's."""

import msgspec
import pytest

from builders import gpu, node, observation, process
from vramline.decide.engine import decide
from vramline.model.ask import Ask, MibSize, RealtimeMode
from vramline.model.fleet import Fleet
from vramline.model.rules import Rules, rules_for
from vramline.units import Mib

STRICT, WARNING, DISABLED = RealtimeMode.STRICT, RealtimeMode.WARNING, RealtimeMode.DISABLED


def fleet_with(own: RealtimeMode | None, *, enabled: bool = False) -> Fleet:
    """One card of 32,600 MiB of which nobody's process uses 30,000, on a node with a mode of its own."""
    fleet = Fleet()
    made = node("n1", gpu("GPU-a"))
    fleet.set_node(msgspec.structs.replace(made, realtime=own, realtime_enabled=enabled))
    fleet.observe("GPU-a", observation(30_000, process(30_000)))
    return fleet


def ask_with(mode: RealtimeMode | None = None, *, enable: bool | None = None) -> Ask:
    return Ask(pod="ns/p", pod_uid="u", gpus=1, size=MibSize(Mib(8_000)), mode=mode, enable_realtime=enable)


@pytest.mark.parametrize(
    ("cluster", "own", "enabled", "pod", "pod_enable", "in_force"),
    [
        pytest.param(STRICT, None, False, None, None, STRICT, id="the cluster's, where nobody else speaks"),
        pytest.param(STRICT, WARNING, False, None, None, WARNING, id="the node's over the cluster's"),
        pytest.param(DISABLED, STRICT, False, None, None, STRICT, id="the node's, strict"),
        pytest.param(STRICT, DISABLED, False, None, None, DISABLED, id="the node's, disabled"),
        pytest.param(WARNING, None, True, None, None, WARNING, id="switched on by the node: as the cluster"),
        pytest.param(DISABLED, None, True, None, None, STRICT, id="switched on where it is disabled: strict"),
        pytest.param(STRICT, DISABLED, False, WARNING, None, WARNING, id="the pod's over the node's"),
        pytest.param(STRICT, WARNING, False, None, False, DISABLED, id="switched off by the pod"),
        pytest.param(STRICT, WARNING, False, None, True, WARNING, id="switched on by the pod: as the node"),
        pytest.param(WARNING, DISABLED, False, None, True, STRICT, id="switched on by the pod over disabled"),
        pytest.param(DISABLED, None, False, None, True, STRICT, id="switched on by the pod alone"),
    ],
)
def test_the_mode_in_force(
    cluster: RealtimeMode,
    own: RealtimeMode | None,
    enabled: bool,
    pod: RealtimeMode | None,
    pod_enable: bool | None,
    in_force: RealtimeMode,
) -> None:
    fleet, ask = fleet_with(own, enabled=enabled), ask_with(pod, enable=pod_enable)

    decision = decide(fleet, ask, rules_for(Rules(mode=cluster), ask), now=100.0)

    assert decision.mode is in_force
    assert (decision.placement is None) is (in_force is STRICT)
    assert bool(decision.warnings) is (in_force is WARNING)


def test_each_node_is_judged_by_its_own_mode() -> None:
    fleet = fleet_with(DISABLED)
    fleet.set_node(node("n0", gpu("GPU-b", node="n0")))
    fleet.observe("GPU-b", observation(30_000, process(30_000)))

    decision = decide(fleet, ask_with(), Rules(), now=100.0)

    assert decision.placement is not None
    assert decision.placement.node == "n1"


def test_a_stale_card_is_refused_only_where_strict_is_in_force() -> None:
    for own, refused in ((None, True), (WARNING, False)):
        fleet = fleet_with(own)
        decision = decide(fleet, ask_with(), Rules(stale_refuses=True), now=10_000.0)
        assert (decision.placement is None) is refused
