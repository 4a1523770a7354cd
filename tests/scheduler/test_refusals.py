"""Which refusals would end if every pod were gone: kube-scheduler tries to make room on those nodes alone."""

import numpy as np
from hypothesis import given, settings

from explain.worlds import ANY_RULES, wishes
from strategies import NOW, fleets
from vramline.decide.engine import decide
from vramline.model.ask import Ask
from vramline.model.fleet import Fleet
from vramline.model.reason import CODE_OF, FITS, Reason
from vramline.model.rules import Rules
from vramline.scheduler.refusals import may_be_resolved

ENDS = [FITS, *(CODE_OF[reason] for reason in (Reason.INSUFFICIENT_VRAM, Reason.NO_SLOT_LEFT))]
ENDS.append(CODE_OF[Reason.INSUFFICIENT_CORES])
OF_CARDS = [*ENDS, CODE_OF[Reason.NOT_ENOUGH_GPUS], CODE_OF[Reason.WRONG_MODEL]]


def cards_that_may_be_taken(fleet: Fleet, wish: Ask, codes: list[int], block: int) -> int:
    """How many cards of a block would do if all were empty, on one NUMA node if that is asked for."""
    run = fleet.columns.blocks[block]
    rows = [row for row in range(run.start, run.start + run.width) if codes[row] in ENDS]
    if not wish.constraints.numa_bind or wish.gpus == 1:
        return len(rows)
    domains = [int(fleet.columns.numa[row]) for row in rows if fleet.columns.numa[row] >= 0]
    return max(map(domains.count, domains), default=0)


@given(fleets(), wishes(), ANY_RULES)
@settings(deadline=None)
def test_a_refusal_ends_where_enough_cards_are_refused_for_what_others_hold(
    fleet: Fleet, wish: Ask, rules: Rules
) -> None:
    for _ in range(2):  # the second time what is kept answers
        decision = decide(fleet, wish, rules, now=NOW)
        resolvable = may_be_resolved(fleet, decision)
        codes = decision.row_codes.tolist()
        for block, number in enumerate(fleet.columns.node_of_block.tolist()):
            if number >= 0 and not decision.node_codes[number]:
                assert resolvable[number]
            elif number >= 0 and cards_that_may_be_taken(fleet, wish, codes, block) < wish.gpus:
                assert not resolvable[number]
            elif number >= 0 and decision.node_codes[number] in OF_CARDS:
                assert resolvable[number]


@given(fleets(), wishes())
@settings(deadline=None)
def test_nodes_that_are_no_candidates_stay_so(fleet: Fleet, wish: Ask) -> None:
    closed = np.full(fleet.node_count, CODE_OF[Reason.NOT_A_CANDIDATE], dtype=np.int8)

    assert not may_be_resolved(fleet, decide(fleet, wish, Rules(), now=NOW, candidates=closed)).any()
