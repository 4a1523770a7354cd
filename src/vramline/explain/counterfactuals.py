"""What would have to be different for a pod to fit: found and verified by `decide`, never guessed.

Each counterfactual is one change and one node. `apply_to` makes the change on copies, so that anyone can
run `decide` on the changed world and see that the pod fits on that node.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.engine import decide
from vramline.decide.filters import fitting_cards
from vramline.decide.scores import UNREACHABLE
from vramline.decide.whatif import copy_node
from vramline.explain.changes import (
    Change,
    End,
    FewerGpus,
    LeavingPod,
    Release,
    SmallerAsk,
    SwitchMode,
    UncordonGpu,
    WhatIf,
    make_change,
    say_change,
)
from vramline.explain.figures import rows_of
from vramline.explain.nearness import CARD_CODES, Survey
from vramline.model.ask import Ask, RealtimeMode
from vramline.model.claim import ClaimState
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, Reason
from vramline.model.rules import Rules

__all__ = ["Counterfactual", "apply_to", "find_counterfactuals"]

Codes = npt.NDArray[np.int8]

_NODES_TRIED = 3
"""How many of the nearest nodes are tried for a change that concerns one node."""

_TRIES = 6
"""How many pods or cards are tried, likeliest first, before a kind of change is given up."""


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """A change after which the ask fits on `node`: for people a sentence, for programs the change."""

    sentence: str
    node: str
    change: Change

    @property
    def kind(self) -> str:
        """The kind of the change, as it is spelled in JSON."""
        return type(self.change).__name__


def apply_to(counterfactual: Counterfactual, fleet: Fleet, ask: Ask, rules: Rules) -> WhatIf:
    """Return the input of a decision with the change made; the arguments stay as they are."""
    return make_change(counterfactual.change, WhatIf(fleet, ask, rules), counterfactual.node)


def find_counterfactuals(
    fleet: Fleet, decision: Decision, rules: Rules, *, candidates: Codes | None = None, most: int = 4
) -> list[Counterfactual]:
    """Return up to `most` changes, each of which alone would let the pod fit; none for a placed pod.

    `rules` and `candidates` are what `decide` was given, and the fleet is as it was then. What would
    happen by itself comes first, what costs somebody else comes last. Not finding one proves nothing.
    """
    if decision.placement is not None:
        return []
    search = _Search(fleet, decision, rules, candidates, Survey(fleet, decision))
    found = (each for find in _FINDERS for each in find(search))
    return list(islice(found, most))


@dataclass(frozen=True, slots=True)
class _Search:
    """A decision that placed nothing, and what it rested on."""

    fleet: Fleet
    decision: Decision
    rules: Rules
    candidates: Codes | None
    survey: Survey

    def nearest_nodes(self) -> Iterator[tuple[str, int]]:
        """Return the nearest nodes that are refused for their cards alone, with the MiB they lack."""
        for number in self.survey.nearest(_NODES_TRIED, CARD_CODES).tolist():
            lacking = int(self.survey.lacking[number])
            yield self.fleet.name_of(number), 0 if lacking >= UNREACHABLE else lacking

    def anywhere(self, change: Change) -> Iterator[Counterfactual]:
        """Return a change of the ask or the rules with the node that takes the pod then, if one does."""
        world = make_change(change, WhatIf(self.fleet, self.decision.ask, self.rules), "")
        placement = decide(
            world.fleet, world.ask, world.rules, now=self.decision.at, candidates=self.candidates
        ).placement
        if placement is not None:
            yield self.tell(change, placement.node)

    def fits_on(self, node: str, change: Change) -> bool:
        """Decide again as if there were only this node, whose host nobody had anything against."""
        world = make_change(change, WhatIf(copy_node(self.fleet, node), self.decision.ask, self.rules), node)
        return decide(world.fleet, world.ask, world.rules, now=self.decision.at).placement is not None

    def tell(self, change: Change, node: str) -> Counterfactual:
        """Put a verified change into words."""
        sentence = f"fits on {node} {say_change(change, self.decision.ask)}"
        return Counterfactual(sentence=sentence, node=node, change=change)

    def first_that_fits(self, tries: Iterable[tuple[str, Change]]) -> Iterator[Counterfactual]:
        """Return the first of these changes after which the ask fits on its node, if any."""
        for node, change in tries:
            if self.fits_on(node, change):
                yield self.tell(change, node)
                return


def _find_release(search: _Search) -> Iterator[Counterfactual]:
    """The nominated node waits for releasing pods: one of them, the smallest that is enough, or all."""
    node = search.decision.nominated
    if node is None:
        return
    leaving = sorted(_pods_on(search.fleet, node, releasing=True), key=lambda pod: pod.mib)
    ways = [*((pod,) for pod in leaving[-_TRIES:]), tuple(leaving)]
    yield from search.first_that_fits((node, Release(pods)) for pods in ways)


def _find_mode(search: _Search) -> Iterator[Counterfactual]:
    """Strict refuses by the card; warning would place by the books, and say so."""
    if search.decision.mode is RealtimeMode.STRICT:
        yield from search.anywhere(SwitchMode(RealtimeMode.WARNING))


def _find_smaller_ask(search: _Search) -> Iterator[Counterfactual]:
    """The largest ask that the nearest node can take."""
    for node, _ in search.nearest_nodes():
        ask_mib = _largest_ask(search, node)
        if ask_mib:
            yield search.tell(SmallerAsk(ask_mib), node)
            return


def _find_fewer_gpus(search: _Search) -> Iterator[Counterfactual]:
    """As many cards as one open node has for this ask."""
    ask, columns = search.decision.ask, search.fleet.columns
    if ask.gpus > 1:
        nodes = columns.node_of_block
        counts = fitting_cards(columns, ask, search.decision.row_codes)
        refused = search.decision.node_codes[nodes] == CODE_OF[Reason.NOT_ENOUGH_GPUS]
        most = int(counts[(nodes >= 0) & refused].max(initial=1))
        yield from search.anywhere(FewerGpus(most))


def _find_end(search: _Search) -> Iterator[Counterfactual]:
    """The smallest pod of a near node whose end would be enough."""
    yield from search.first_that_fits(
        (node, End(pod))
        for node, lacking in search.nearest_nodes()
        for pod in _large_enough(_pods_on(search.fleet, node, releasing=False), lacking)[:_TRIES]
    )


def _find_uncordon(search: _Search) -> Iterator[Counterfactual]:
    """A card that an operator took out of service."""
    decision, columns = search.decision, search.fleet.columns
    nodes = columns.node_of_block[columns.block]
    open_rows = np.isin(decision.node_codes[nodes], CARD_CODES) & (nodes >= 0)
    rows = np.flatnonzero(open_rows & (decision.row_codes == CODE_OF[Reason.CORDONED_GPU])).tolist()
    cards = sorted((columns.card(row) for row in rows), key=lambda gpu: (gpu.node, gpu.uuid))
    yield from search.first_that_fits((gpu.node, UncordonGpu(gpu.uuid)) for gpu in cards[:_TRIES])


_FINDERS: tuple[Callable[[_Search], Iterator[Counterfactual]], ...] = (
    _find_release,
    _find_mode,
    _find_smaller_ask,
    _find_fewer_gpus,
    _find_end,
    _find_uncordon,
)


def _pods_on(fleet: Fleet, node_name: str, *, releasing: bool) -> list[LeavingPod]:
    """Return the pods with claims on a node, and the MiB they claim there in all."""
    node = fleet.node(node_name)
    pods: dict[str, LeavingPod] = {}
    for gpu in () if node is None else node.gpus:
        for claim in fleet.ledger.of_card(gpu.uuid):
            if (claim.state is ClaimState.RELEASING) == releasing:
                known = pods.get(claim.pod_uid)
                mib = claim.mib + (0 if known is None else known.mib)
                name = claim.pod if claim.until is None else f"the reservation of {claim.pod}"
                pods[claim.pod_uid] = LeavingPod(name, claim.pod_uid, mib)
    return list(pods.values())


def _large_enough(pods: list[LeavingPod], lacking: int) -> list[LeavingPod]:
    """Return the pods that claim at least what is lacking, the smallest first."""
    return sorted((pod for pod in pods if pod.mib >= lacking), key=lambda pod: pod.mib)


def _largest_ask(search: _Search, node: str) -> int:
    """Return the largest ask that fits on a node; 0: none does.

    What fits changes only where a card is exactly filled, so the free figures are all there is to try.
    """
    number, free = search.fleet.node_number(node), search.decision.free
    rows = () if number is None else rows_of(search.fleet, number)
    amounts = sorted({int(free[row]) for row in rows if free[row] > 0})
    too_large = bisect_left(amounts, 1, key=lambda mib: not search.fits_on(node, SmallerAsk(mib)))
    return amounts[too_large - 1] if too_large else 0
