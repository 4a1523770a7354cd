"""What would help a model that fits nowhere: each answer was decided again, none is guessed."""

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from vramline.errors import RequestError
from vramline.explain.changes import End, Release, SwitchMode, UncordonGpu
from vramline.explain.counterfactuals import find_counterfactuals
from vramline.inference.caches import Engine
from vramline.inference.estimate import Plan, estimate
from vramline.inference.fit import Fit, FitQuestion, find_ways
from vramline.inference.quantization import quantise_on_load
from vramline.model.cluster import Cluster
from vramline.model.pod import Pod

__all__ = ["Help", "find_help"]

_STEP = 256
"""Contexts are tried in steps of this many tokens."""
_SMALL_BATCH = (256, 2048)
_WORLD = (Release, End, SwitchMode, UncordonGpu)
"""Changes of the cluster; an ask that is smaller by itself helps nobody who serves a model."""


class Help(msgspec.Struct, frozen=True, kw_only=True):
    """One change after which the model fits, and where."""

    sentence: str
    node: str
    tp: int
    change: dict[str, str | int]
    """What is different: options of the command, or what happens in the cluster."""


def find_help(question: FitQuestion, cluster: Cluster, tried: list[Fit], *, most: int = 6) -> list[Help]:
    """Return changes each of which alone lets a model fit that fits nowhere; none for one that fits.

    `tried` is what `find_ways` found. Not finding a change proves nothing.
    """
    if any(fit.way.fits for fit in tried):
        return []
    finders = (_find_degree, _find_context, _find_concurrency, _find_options, _find_cluster_changes)
    found = (each for find in finders for each in find(question, cluster, tried))
    return list(islice(found, most))


def _first_fit(question: FitQuestion, cluster: Cluster, plan: Plan) -> Fit | None:
    """Return the first way that fits under another plan."""
    changed = msgspec.structs.replace(question, plan=plan)
    try:
        return next((fit for fit in find_ways(changed, cluster) if fit.way.fits), None)
    except RequestError:
        return None  # the change does not go with this model


def _help(fit: Fit, sentence: str, change: dict[str, str | int]) -> Help:
    way = fit.way
    where = f"on {way.nodes[0]}" + (f" at tp={way.tp}" if way.tp > 1 and "tp" not in change else "")
    return Help(sentence=f"fits {where} {sentence}", node=way.nodes[0], tp=way.tp, change=change)


def _find_degree(question: FitQuestion, cluster: Cluster, _tried: list[Fit]) -> Iterator[Help]:
    """Another degree than the one that was asked for."""
    if question.degrees:
        free = msgspec.structs.replace(question, degrees=())
        fit = next((fit for fit in find_ways(free, cluster) if fit.way.fits), None)
        if fit is not None:
            yield _help(fit, f"at tp={fit.way.tp}", {"tp": fit.way.tp})


def _find_context(question: FitQuestion, cluster: Cluster, tried: list[Fit]) -> Iterator[Help]:
    """The longest context that fits, in steps."""
    context = _context_of(question, tried)
    steps = _largest(
        (context - 1) // _STEP,
        lambda count: _first_fit(question, cluster, _with_context(question.plan, count * _STEP)),
    )
    if steps:
        fit = _first_fit(question, cluster, _with_context(question.plan, steps * _STEP))
        if fit is not None:
            yield _help(fit, f"if context {context:,} → {steps * _STEP:,}", {"context": steps * _STEP})


def _find_concurrency(question: FitQuestion, cluster: Cluster, _tried: list[Fit]) -> Iterator[Help]:
    """The most sequences at a time that fit."""
    asked = question.plan.concurrency

    def attempt(count: int) -> Fit | None:
        return _first_fit(question, cluster, msgspec.structs.replace(question.plan, concurrency=count))

    count = _largest(asked - 1, attempt)
    fit = attempt(count) if count else None
    if fit is not None:
        yield _help(fit, f"if concurrency {asked:,} → {count:,}", {"concurrency": count})


def _find_options(question: FitQuestion, cluster: Cluster, _tried: list[Fit]) -> Iterator[Help]:
    """A smaller type of cache, quantised weights, smaller batches, no graphs."""
    plan = question.plan
    changes: list[tuple[Plan, str, dict[str, str | int]]] = []
    if plan.kv_dtype == "auto":
        changes.append(
            (msgspec.structs.replace(plan, kv_dtype="fp8"), "with --kv-dtype fp8", {"kv_dtype": "fp8"})
        )
    if plan.engine is Engine.VLLM and plan.max_num_seqs is None and plan.max_batched_tokens is None:
        sequences, tokens = _SMALL_BATCH
        small = msgspec.structs.replace(plan, max_num_seqs=sequences, max_batched_tokens=tokens)
        words = f"with --max-num-seqs {sequences} --max-batched-tokens {tokens}"
        changes.append((small, words, {"max_num_seqs": sequences, "max_batched_tokens": tokens}))
    if plan.graphs:
        eager = msgspec.structs.replace(plan, graphs=False)
        changes.append((eager, "with --enforce-eager", {"enforce_eager": 1}))
    if plan.quantization is None and question.model.scheme is None and question.model.file_bytes in {None, 0}:
        small = msgspec.structs.replace(plan, quantization=quantise_on_load("fp8"))
        changes.append((small, "with --quantization fp8", {"quantization": "fp8"}))
    for changed, words, change in changes:
        fit = _first_fit(question, cluster, changed)
        if fit is not None:
            yield _help(fit, words, change)


def _find_cluster_changes(question: FitQuestion, cluster: Cluster, tried: list[Fit]) -> Iterator[Help]:
    """Pods that end, memory that is released, a card that comes back: for the ways in their order."""
    said: set[str] = set()
    for fit in tried:
        pod = Pod(namespace="fit", name="model", uid=fit.ask.pod_uid, ask=fit.ask, host=question.host)
        found = find_counterfactuals(
            cluster.fleet,
            fit.decision,
            cluster.rules_for(fit.ask),
            candidates=cluster.candidates_for(pod),
            most=8,
        )
        for each in found:
            if isinstance(each.change, _WORLD) and each.kind not in said:
                said.add(each.kind)
                degree = f" at tp={fit.way.tp}" if fit.way.tp > 1 else ""
                sentence = each.sentence.replace(f"fits on {each.node}", f"fits on {each.node}{degree}", 1)
                yield Help(sentence=sentence, node=each.node, tp=fit.way.tp, change={"cluster": each.kind})


def _context_of(question: FitQuestion, tried: list[Fit]) -> int:
    tp = tried[0].way.tp if tried else 1
    return estimate(question.model, msgspec.structs.replace(question.plan, tp=tp)).context


def _with_context(plan: Plan, context: int) -> Plan:
    return msgspec.structs.replace(plan, context=context)


def _largest(most: int, attempt: Callable[[int], object | None]) -> int:
    """Return the largest number from 1 to `most` that succeeds, where smaller ones succeed too; 0: none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if attempt(middle) is not None:
            low = middle
        else:
            high = middle - 1
    return low
