"""All cards as one set of rules sees them: kept from decision to decision, renewed where something changed.

A cluster changes in one place at a time: between two decisions a few nodes did. A scene knows which, by the
stamps of the columns and by the clock, which makes observations old; what is built upon it asks for the
blocks that changed since it last looked. So the answer never depends on what was asked before.
"""

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import numpy.typing as npt

from vramline.decide.loans import Loans
from vramline.decide.realtime import Look, look_at_cards
from vramline.decide.sizes import size_on_each_card
from vramline.model.ask import Size
from vramline.model.changes import Changes
from vramline.model.columns import GpuColumns
from vramline.model.fleet import Fleet
from vramline.model.host import HostColumns
from vramline.model.reason import FITS
from vramline.model.rules import Rules

__all__ = ["Rows", "Scene", "scene_of"]

_MOST_CPU = 10**9
"""Milli-CPU left where nobody counts."""
_HAIR = 1e-3
"""Seconds before its end at which it is looked again whether an observation counts: sums are not exact."""
_MOST_STATES = 100_000
"""So many states of nodes are told apart before counting starts anew."""
_KEPT = 4
"""Sets of rules whose scenes are kept: pods and nodes may have a mode of their own."""

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = Ints | slice


class Scene:
    """What the rules make of every card, by row; and which block changed when."""

    def __init__(self, fleet: Fleet, rules: Rules, *, now: float) -> None:
        columns = fleet.columns
        look = look_at_cards(columns, rules, now=now)
        self.rules = rules
        self.layout = (columns.layout, columns.has_node_modes)
        """While this stands, there are the same cards, to which the same sizes mean the same."""
        self.changes = Changes(len(columns.blocks), version=1)
        """Of blocks, in whatever is in the scene."""
        self.free, self.strict_free = look.free, look.strict_free
        self.fresh, self.observed, self.modes = look.fresh, look.observed, look.modes
        self.left = _left(columns, look.free)
        """By row: MiB that pods to come may use; 0 where nobody can use the card."""
        self.cpu = np.full(len(columns.blocks), _MOST_CPU, dtype=np.int64)
        """By block: milli-CPU left on its node."""
        self.built: dict[str, Any] = {}
        """What is built upon the scene. `fork()` of each returns the same for a copy of the fleet."""
        self.loans = Loans()
        """`free` and `observed` are handed out without a copy."""
        self._sizes: dict[Size, Ints] = {}
        self._states = np.zeros(len(columns.blocks), dtype=np.int64)
        self._state_numbers: dict[tuple[bytes, bytes, int], int] = {}
        self._states_seen = 0
        self._seen = columns.changes.version
        self._hosts: HostColumns | None = None
        self._hosts_seen = 0
        self._block_of_node = _blocks_by_node(fleet)
        self._age(columns, look.fresh, now=now)
        self._see_hosts(fleet)

    def fork(self) -> "Scene":
        """Return the same scene for a copy of the fleet."""
        copy: Scene = object.__new__(Scene)
        copy.__dict__.update(self.__dict__)
        copy.loans = Loans(self.loans.give())
        copy.changes, copy.cpu, copy._sizes = self.changes.copy(), self.cpu.copy(), dict(self._sizes)
        copy._states, copy._state_numbers = self._states.copy(), dict(self._state_numbers)
        copy.built = {name: each.fork() for name, each in self.built.items()}
        return copy

    def renew(self, fleet: Fleet, *, now: float) -> None:
        """Look again at what has changed since the scene was last renewed."""
        columns = fleet.columns
        aged: Ints | None = None
        if columns.looks != self._looks_seen or not self._since <= now < self._until:
            fresh = columns.fresh(now=now, max_age_s=self.rules.max_age_s)
            aged = columns.block[fresh != self.fresh]
            self._age(columns, fresh, now=now)
        block = None if aged is not None and len(aged) else columns.changes.only_since(self._seen)
        if block is not None:
            self._look_again(*columns.one(block), now=now)
            self.changes.note(block)
        else:
            blocks = columns.changes.since(self._seen)
            blocks = np.union1d(blocks, aged) if aged is not None and len(aged) else blocks
            if len(blocks):
                self._look_again(*columns.part(blocks), now=now)
                self.changes.note_all(blocks)
        self._seen = columns.changes.version
        self._see_hosts(fleet)

    def _age(self, columns: GpuColumns, fresh: Mask, *, now: float) -> None:
        """Note until when, without another look, observations that count go on to do so."""
        ends = np.minimum(columns.observed_at + self.rules.max_age_s, columns.void_at)
        self._since, self._until = now, float(ends[fresh].min(initial=math.inf)) - _HAIR
        self._looks_seen = columns.looks

    def look_at(self, columns: GpuColumns, rows: Rows, *, now: float) -> Look:
        """Return the look at some rows, which `columns` are a part of."""
        free, fresh = self.free[rows], self.fresh[rows]
        strict_free = free if self.strict_free is self.free else self.strict_free[rows]
        observed = fresh if self.observed is self.fresh else self.observed[rows]
        modes = None if self.modes is None else self.modes[rows]
        return Look(columns, self.rules, now, free, strict_free, fresh, observed, modes)

    def sizes_of(self, columns: GpuColumns, size: Size) -> Ints:
        """Return what a size means on each card. Not to be written to."""
        known = self._sizes.get(size)
        if known is None:
            if len(self._sizes) >= 64:
                self._sizes.clear()
            known = size_on_each_card(columns, size, unsized_is_whole=self.rules.unsized_is_whole)
            self._sizes[size] = known
        return known

    def states(self, columns: GpuColumns) -> Ints:
        """Return a number for each block: equal where cards, what is left of them, and CPU are the same."""
        if len(self._state_numbers) > _MOST_STATES:
            self._state_numbers, self._states_seen = {}, 0
        for block in self.changes.since(self._states_seen).tolist():
            run = columns.blocks[block]
            rows = slice(run.start, run.start + run.width)
            state = (self.left[rows].tobytes(), columns.kind[rows].tobytes(), int(self.cpu[block]))
            self._states[block] = self._state_numbers.setdefault(state, len(self._state_numbers))
        self._states_seen = self.changes.version
        return self._states

    def _look_again(self, part: GpuColumns, rows: Rows, *, now: float) -> None:
        look = look_at_cards(part, self.rules, now=now)
        if self.loans.must_copy:
            self._own_arrays()
        self.free[rows], self.fresh[rows] = look.free, look.fresh
        if self.strict_free is not self.free:
            self.strict_free[rows] = look.strict_free
        if self.observed is not self.fresh:
            self.observed[rows] = look.observed
        if look.modes is not None and self.modes is not None:
            self.modes[rows] = look.modes
        self.left[rows] = _left(part, look.free)

    def _own_arrays(self) -> None:
        """Go on with copies; what was one array for two purposes stays one."""
        strict, seen = self.free is self.strict_free, self.observed is self.fresh
        self.free, self.fresh, self.left = self.free.copy(), self.fresh.copy(), self.left.copy()
        self.strict_free = self.free if strict else self.strict_free.copy()
        self.observed = self.fresh if seen else self.observed.copy()
        self.modes = None if self.modes is None else self.modes.copy()
        self.loans.copied()

    def _see_hosts(self, fleet: Fleet) -> None:
        """Take note of what is left of the CPU of each block's node."""
        hosts = fleet.hosts
        if hosts is None or (hosts is self._hosts and hosts.changes.version == self._hosts_seen):
            return
        if hosts is self._hosts:
            node = hosts.changes.only_since(self._hosts_seen)
            if node is not None:
                self._see_host(hosts, node)
                return
            nodes = hosts.changes.since(self._hosts_seen)
            nodes = nodes[nodes < len(self._block_of_node)]
        else:
            nodes = np.arange(min(len(self._block_of_node), len(hosts.cpu_milli)))
        nodes = nodes[self._block_of_node[nodes] >= 0]
        blocks = self._block_of_node[nodes]
        if len(blocks):
            self.cpu[blocks] = np.minimum(hosts.cpu_milli[nodes], _MOST_CPU)
            self.changes.note_all(blocks)
        self._hosts, self._hosts_seen = hosts, hosts.changes.version

    def _see_host(self, hosts: HostColumns, node: int) -> None:
        """Do the same where one node changed."""
        block = int(self._block_of_node[node]) if node < len(self._block_of_node) else -1
        if block >= 0:
            self.cpu[block] = min(int(hosts.cpu_milli[node]), _MOST_CPU)
            self.changes.note(block)
        self._hosts_seen = hosts.changes.version


class _Scenes:
    """The scenes of one fleet, by rules."""

    def __init__(self) -> None:
        self.by_rules: OrderedDict[Rules, Scene] = OrderedDict()
        self.last: Scene | None = None
        """The one that was asked for last."""

    def fork(self) -> "_Scenes":
        """Return the same for a copy of the fleet."""
        copy = _Scenes()
        copy.by_rules = OrderedDict((rules, scene.fork()) for rules, scene in self.by_rules.items())
        return copy


def scene_of(fleet: Fleet, rules: Rules, *, now: float) -> Scene:
    """Return the fleet as it is now, as these rules see it."""
    scenes: _Scenes = fleet.remembered.setdefault("scenes", _Scenes())
    scene = scenes.last
    if scene is None or scene.rules is not rules:  # comparing rules takes a while, and they seldom differ
        scene = scenes.by_rules.get(rules)
    if scene is not None and scene.layout == (fleet.columns.layout, fleet.columns.has_node_modes):
        if scene is not scenes.last:
            scenes.by_rules.move_to_end(rules)
            scenes.last = scene
        scene.renew(fleet, now=now)
        return scene
    scene = scenes.last = scenes.by_rules[rules] = Scene(fleet, rules, now=now)
    if len(scenes.by_rules) > _KEPT:
        scenes.by_rules.popitem(last=False)
    return scene


def _left(columns: GpuColumns, free: Ints) -> Ints:
    left: Ints = np.maximum(free, 0)
    left *= columns.static_code == FITS
    if columns.has_limits:
        left *= columns.slots_left > 0
    return left


def _blocks_by_node(fleet: Fleet) -> Ints:
    """Return the block of each node by its number; −1 where it has no cards."""
    blocks = np.full(fleet.node_count, -1, dtype=np.int64)
    nodes = fleet.columns.node_of_block
    blocks[nodes[nodes >= 0]] = (nodes >= 0).nonzero()[0]
    return blocks
