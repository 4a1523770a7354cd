"""What a run prints: the shape of `vramline simulate -o json`. Keys may be added, never renamed."""

from collections import Counter

import msgspec

from vramline.explain.cards import CardState, card_state
from vramline.explain.figures import Basis
from vramline.explain.lines import NodeLine
from vramline.model.ask import PolicyName, RealtimeMode
from vramline.simulate.outcome import Outcome, Status
from vramline.simulate.run import Run
from vramline.wire.times import format_time

__all__ = ["PodGpu", "PodReport", "RunReport", "SkippedObject", "Summary", "report_run"]


class PodGpu(msgspec.Struct, frozen=True):
    """What a pod holds on one card."""

    uuid: str
    mib: int


class PodReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one pod."""

    pod: str
    status: Status
    node: str | None
    """None: it is nowhere."""
    gpus: list[PodGpu]
    reason: str | None
    message: str
    warnings: list[str]
    nodes: list[NodeLine]
    nominated: str | None
    """Where it would fit once releasing memory is free; a hint, never a promise."""
    counterfactuals: list[str]
    """What would let it fit, each verified by a decision, one sentence each."""
    basis: Basis | None
    """Whether a placement rests on a look at the cards (observed) or on the books alone."""


class SkippedObject(msgspec.Struct, frozen=True):
    """An object of a kind that is not read."""

    where: str
    kind: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts. bound, pending and rejected are about this run, the rest was there before."""

    bound: int
    pending: int
    rejected: int
    running: int
    releasing: int
    finished: int


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one run."""

    pods: list[PodReport]
    gpus: list[CardState]
    """By node, then index."""
    summary: Summary
    mode: RealtimeMode
    policy: PolicyName
    now: str | None
    """What the run took for the present; None: the input has no time in it."""
    problems: list[str]
    """Objects that were rejected or could not be read."""
    warnings: list[str]
    skipped: list[SkippedObject]


def report_run(run: Run) -> RunReport:
    """Put a run into the shape that is printed."""
    cluster, now = run.cluster, run.cluster.now()
    fleet, rules = cluster.fleet, cluster.rules
    gpus = sorted((gpu for node in fleet.nodes for gpu in node.gpus), key=lambda gpu: (gpu.node, gpu.index))
    return RunReport(
        pods=[_report_pod(outcome) for outcome in run.outcomes],
        gpus=[
            card_state(fleet, gpu.uuid, now=now, max_age_s=rules.max_age_s, grace_s=cluster.release_grace_s)
            for gpu in gpus
        ],
        summary=_summarise(run),
        mode=rules.mode,
        policy=rules.policy,
        now=format_time(now) if now else None,
        problems=[str(problem) for problem in run.problems],
        warnings=run.warnings,
        skipped=[SkippedObject(where, kind) for where, kind in run.skipped],
    )


def _report_pod(outcome: Outcome) -> PodReport:
    explanation = outcome.explanation
    return PodReport(
        pod=outcome.pod.key,
        status=outcome.status,
        node=outcome.node,
        gpus=[PodGpu(share.uuid, share.mib) for share in outcome.gpus],
        reason=outcome.reason,
        message=outcome.message,
        warnings=list(outcome.warnings),
        nodes=list(outcome.nodes),
        nominated=None if explanation is None else explanation.nominated,
        counterfactuals=[]
        if explanation is None
        else [each.sentence for each in explanation.counterfactuals],
        basis=outcome.basis,
    )


def _summarise(run: Run) -> Summary:
    counts = Counter(outcome.status for outcome in run.outcomes)
    return Summary(
        bound=counts[Status.BOUND],
        pending=counts[Status.PENDING],
        rejected=counts[Status.REJECTED],
        running=counts[Status.RUNNING],
        releasing=counts[Status.RELEASING],
        finished=run.finished,
    )
