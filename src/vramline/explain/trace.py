"""The decision as tagged lines, one fact each, for `grep`: the tag says which question the line answers.

    [GPU_FILTER]      what was asked of a node, what its cards are like, which of them fit
    [GPU_FIT_CHECK]   the conditions behind "fits"
    [IDLE_CHECK]      is there enough now? Releasing memory is held
    [RESOURCE_CHECK]  would there be enough once releasing memory is free? Decides nothing but a nomination
    [GPU_SELECT]      how the nodes and cards that fit compare
    [GPU_ALLOCATE]    what came of it

Values stand in angle brackets, memory in MiB; what nobody could tell is <unknown>.
"""

from collections.abc import Iterator

from vramline.explain.decision import Explanation
from vramline.explain.figures import rows_of
from vramline.explain.history import DecisionRecord
from vramline.explain.lines import CardLine, NodeLine, node_line
from vramline.explain.nearness import Survey
from vramline.explain.text import card_name, say_ask
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.observation import Unknown

__all__ = ["changed_since", "lines_of_explanation", "trace_lines"]


def trace_lines(fleet: Fleet, decision: Decision, *, most_nodes: int | None = 50) -> list[str]:
    """Return the lines of one decision, for the best and nearest nodes that have GPUs (None: for all).

    To be called while the fleet is as the decision saw it.
    """
    survey = Survey(fleet, decision)
    numbers = [number for number in survey.first(None).tolist() if len(rows_of(fleet, number))]
    nodes = [node_line(fleet, decision, number) for number in numbers[:most_nodes]]
    lines: list[str] = []
    for node in nodes:
        lines += _filter_lines(fleet, decision, node)
    if len(nodes) < len(numbers):
        lines.append(_line("GPU_FILTER", pod=decision.ask.pod, NodesNotShown=len(numbers) - len(nodes)))
    lines += _select_lines(decision, [node for node in nodes if node.fits], survey.fitting_nodes)
    lines.append(_allocate_line(decision))
    return lines


def lines_of_explanation(pod: str, explanation: Explanation, record: DecisionRecord | None) -> list[str]:
    """Return the lines that can still be written once a decision is history.

    Which cards there were and what they said of themselves is not in it any more; `record` is what became of
    the decision, None: nothing, it was only tried.
    """
    lines: list[str] = []
    for node in explanation.nodes:
        where = {"pod": pod, "node": node.node}
        lines.append(
            _line(
                "GPU_FILTER",
                **where,
                PhysicalGPUs=len(node.gpus),
                LedgerVersion=explanation.ledger_version,
                Mode=explanation.mode,
                Fits=node.fits,
                Reason=node.reason or "none",
            )
        )
        for card in node.gpus:
            lines += _check_lines({**where, "gpu": card.uuid}, card)
    for alternative in explanation.alternatives:
        score = {"node": alternative.node, "Score": alternative.score}
        lines.append(_line("GPU_SELECT", pod=pod, **score, Policy=explanation.policy))
    lines.append(
        _line(
            "GPU_ALLOCATE",
            pod=pod,
            node="none" if record is None or record.node is None else record.node,
            gpus="[" + " ".join(share.uuid for share in (() if record is None else record.gpus)) + "]",
            NominatedNode=explanation.nominated or "none",
            success=record is not None and record.node is not None,
        )
    )
    return lines


def _check_lines(where: dict[str, str], card: CardLine) -> Iterator[str]:
    held = {"UsableMemory": _mib(card.usable_mib), "AllocatedMemory": _mib(card.held_mib)}
    held |= {"UnmanagedMemory": _mib(card.unmanaged_mib), "Margin": _mib(card.margin_mib)}
    held |= {"RequestedMemory": _mib(card.ask_mib)}
    age = None if card.observed_age_s is None else f"{card.observed_age_s:.0f} s"
    yield _line(
        "IDLE_CHECK",
        **where,
        **held,
        AvailableMemory=_mib(card.free_mib),
        Enough=card.ask_mib <= card.free_mib,
        Basis=card.basis,
        ObservedAge=age,
        Reason=card.reason or "none",
    )
    if card.releasing_mib:
        once_released = card.free_mib + card.releasing_mib
        yield _line(
            "RESOURCE_CHECK",
            **where,
            ReleasingMemory=_mib(card.releasing_mib),
            AvailableMemory=_mib(once_released),
            Enough=card.ask_mib <= once_released,
        )


def changed_since(before: list[NodeLine], after: list[NodeLine]) -> list[str]:
    """Name the figures that two decisions about the same pod saw differently, on cards both looked at.

    The first is the one made when nodes were filtered, the second the one made when cards were claimed.
    """
    known = {card.uuid: card for node in before for card in node.gpus}
    return [
        f"{card_name(node.node, card.uuid)}: {difference}"
        for node in after
        for card in node.gpus
        if card.uuid in known
        for difference in _differences(known[card.uuid], card)
    ]


def _differences(before: CardLine, after: CardLine) -> Iterator[str]:
    old = _compared(before)
    for word, value in _compared(after).items():
        if value != old[word]:
            yield f"{word} {_shown(old[word])} -> {_shown(value)}"


def _compared(card: CardLine) -> dict[str, object]:
    """Return what is compared between two looks, under the names it has in trace lines."""
    return {
        "AllocatedMemory": card.held_mib,
        "ReleasingMemory": card.releasing_mib,
        "UnmanagedMemory": card.unmanaged_mib,
        "AvailableMemory": card.free_mib,
        "RequestedMemory": card.ask_mib,
        "Basis": card.basis,
        "Reason": card.reason or "none",
    }


def _filter_lines(fleet: Fleet, decision: Decision, line: NodeLine) -> Iterator[str]:
    node = fleet.node(line.node)
    yield _line(
        "GPU_FILTER",
        pod=decision.ask.pod,
        node=line.node,
        Requested=say_ask(decision.ask),
        PhysicalGPUs=len(line.gpus),
        AdvertisedGPUs=None if node is None else node.advertised,
        LedgerVersion=decision.ledger_version,
        Mode=decision.mode,
        Fits=line.fits,
        Reason=line.reason or "none",
    )
    for card in line.gpus:
        yield from _card_lines(fleet, decision.ask.pod, line.node, card)


def _card_lines(fleet: Fleet, pod: str, node: str, card: CardLine) -> Iterator[str]:
    gpu, seen = fleet.gpu(card.uuid), fleet.observation(card.uuid)
    where = {"pod": pod, "node": node, "gpu": card.uuid}
    held = {"TotalMemory": _mib(None if gpu is None else gpu.total), "UsableMemory": _mib(card.usable_mib)}
    held |= {"AllocatedMemory": _mib(card.held_mib), "UnmanagedMemory": _mib(card.unmanaged_mib)}
    held |= {"Margin": _mib(card.margin_mib), "RequestedMemory": _mib(card.ask_mib)}
    once_released = card.free_mib + card.releasing_mib
    yield _line(
        "GPU_FILTER",
        **where,
        UsedMemory=_mib(None if seen is None or isinstance(seen.used, Unknown) else seen.used),
        AllocatedMemory=_mib(card.held_mib),
        ReleasingMemory=_mib(card.releasing_mib),
        TotalGpuMemory=_mib(None if gpu is None else gpu.total),
        Fits=card.reason is None,
        Reason=card.reason or "none",
    )
    yield _line(
        "GPU_FIT_CHECK",
        **where,
        InUse=card.held_mib > 0 or bool(card.unmanaged_mib),
        EnoughResources=card.ask_mib <= card.free_mib,
        AllReleasing=0 < card.held_mib == card.releasing_mib,
        SlotsLeft="unlimited" if card.slots_left is None else card.slots_left,
        CoresLeft=f"{card.cores_left} %",
        Fits=card.reason is None,
    )
    yield _line(
        "IDLE_CHECK",
        **where,
        **held,
        AvailableMemory=_mib(card.free_mib),
        Enough=card.ask_mib <= card.free_mib,
        Basis=card.basis,
        ObservedAge=None if card.observed_age_s is None else f"{card.observed_age_s:.0f} s",
        Source="nobody" if seen is None else seen.source,
    )
    yield _line(
        "RESOURCE_CHECK",
        **where,
        **held,
        ReleasingMemory=_mib(card.releasing_mib),
        AvailableMemory=_mib(once_released),
        Enough=card.ask_mib <= once_released,
    )


def _select_lines(decision: Decision, nodes: list[NodeLine], fitting_nodes: int) -> Iterator[str]:
    pod, placement = decision.ask.pod, decision.placement
    taken = () if placement is None else {share.uuid for share in placement.gpus}
    yield _line(
        "GPU_SELECT",
        pod=pod,
        RequiredDevices=decision.ask.gpus,
        FittingNodes=fitting_nodes,
        Policy=decision.policy,
    )
    for node in nodes:
        chosen = placement is not None and node.node == placement.node
        yield _line("GPU_SELECT", pod=pod, node=node.node, Score=node.score, Selected=chosen)
        for card in node.gpus if chosen else ():
            yield _line(
                "GPU_SELECT",
                pod=pod,
                node=node.node,
                gpu=card.uuid,
                EnoughIdle=card.ask_mib <= card.free_mib,
                TaskAllocatable=card.reason is None,
                Selected=card.uuid in taken,
            )


def _allocate_line(decision: Decision) -> str:
    placement = decision.placement
    return _line(
        "GPU_ALLOCATE",
        pod=decision.ask.pod,
        node="none" if placement is None else placement.node,
        gpus="[" + " ".join(share.uuid for share in (() if placement is None else placement.gpus)) + "]",
        Requested=say_ask(decision.ask),
        nominated=decision.nominated is not None,
        NominatedNode=decision.nominated or "none",
        success=placement is not None,
    )


def _line(tag: str, **values: object) -> str:
    return f"[{tag}] " + " ".join(f"{key}=<{_shown(value)}>" for key, value in values.items())


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mib(amount: int | None) -> str | None:
    return None if amount is None else f"{amount} MiB"
