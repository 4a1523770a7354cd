"""Stories: manifests that change step by step, and what must come of them. Run by tests and by the demo.

A story file (YAML) has `title`, `text` and `steps`. A step may say:

    title, text   what happens
    apply         Kubernetes objects; merged into the object of the same kind and name, null deletes a key
    delete        objects that vanish, as `Kind namespace/name` or `Kind name`
    options       settings by name (docs/settings.md), and `now`
    whatif        true: placements of this step are forgotten after it
    expect        see `Expectation`

Every step is a run from nothing on all manifests so far, as after a restart. What a step placed is
written into the manifests as the scheduler would: nodeName and the allocation annotation. Pods of a
workload are the exception; they are placed anew in every step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import msgspec

from vramline.errors import RequestError
from vramline.explain.text import card_name
from vramline.settings import Settings, load
from vramline.simulate.expectation import Expectation, compare
from vramline.simulate.options import RunOptions, options_from
from vramline.simulate.outcome import Status
from vramline.simulate.report import RunReport, report_run
from vramline.simulate.run import Run, run_documents
from vramline.simulate.yaml_documents import read_yaml
from vramline.units import format_mib
from vramline.wire import keys
from vramline.wire.allocation import AllocationRecord, encode_allocation
from vramline.wire.decoding import convert_document
from vramline.wire.times import read_time

__all__ = ["StepResult", "Story", "StoryResult", "list_stories", "play_story", "read_story"]

_MOST_LINES = 12
"""Pods or cards of one step that a transcript lists."""

_Object = dict[str, Any]


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change and what must come of it."""

    title: str
    text: str = ""
    apply: list[_Object] = []
    delete: list[str] = []
    options: dict[str, Any] = {}
    whatif: bool = False
    expect: Expectation = Expectation()


class Story(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Steps that belong together."""

    title: str
    text: str = ""
    steps: list[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What came of one step."""

    title: str
    text: str
    report: RunReport
    failures: tuple[str, ...]
    """Where it came out differently; empty: all as expected."""
    checks: int

    @property
    def passed(self) -> bool:
        """Whether everything came out as expected."""
        return not self.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryResult:
    """What came of a story."""

    title: str
    text: str
    steps: tuple[StepResult, ...]

    @property
    def passed(self) -> bool:
        """Whether every step came out as expected."""
        return all(step.passed for step in self.steps)

    def transcript(self) -> Iterator[str]:
        """Yield the story as lines for people."""
        yield self.title
        for line in self.text.splitlines():
            yield f"  {line}"
        for step in self.steps:
            yield f"— {step.title}"
            for line in step.text.splitlines():
                yield f"  {line}"
            yield from _tell_pods(step.report)
            yield from _tell_cards(step.report)
            for failure in step.failures:
                yield f"  ✗ {failure}"
            if step.passed:
                yield f"  ✓ as expected ({step.checks} checks)"


def list_stories() -> list[Story]:
    """Return the stories that come with the package, in order."""
    folder = resources.files("vramline.simulate").joinpath("stories")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda f: f.name)
    return [read_story(file.read_text(encoding="utf-8"), file.name) for file in files]


def read_story(text: str, where: str) -> Story:
    """Read a story file; raises `RequestError` where it is not one."""
    for found in read_yaml(text, where):
        if isinstance(found, RequestError):
            raise found
        return convert_document(found[1], Story, subject=where)
    raise RequestError(subject=where, problem="is empty", accepted="a story: title, text, steps")


def play_story(story: Story) -> StoryResult:
    """Run all steps."""
    state = _State()
    results = []
    for number, step in enumerate(story.steps, start=1):
        where = f"{story.title}, step {number}"
        state.change(step)
        settings = _settings(step, where)
        run = run_documents(state.documents(where), _options(step, settings, where))
        report = report_run(run)
        if not step.whatif:
            state.write_back(run)
        failures, checks = compare(step.expect, run, report, platforms=settings.platforms)
        results.append(
            StepResult(title=step.title, text=step.text, report=report, failures=failures, checks=checks)
        )
    return StoryResult(title=story.title, text=story.text, steps=tuple(results))


def _settings(step: Step, where: str) -> Settings:
    wanted = {name: value for name, value in step.options.items() if name != "now"}
    return load(wanted, {}, {}, file_name=where)


def _options(step: Step, settings: Settings, where: str) -> RunOptions:
    now, options = step.options.get("now"), options_from(settings)
    return options if now is None else replace(options, now=read_time(now, subject=where, field="now"))


class _State:
    """All objects by kind and name."""

    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}

    def change(self, step: Step) -> None:
        """Apply and delete."""
        for name in step.delete:
            if self._objects.pop(name, None) is None:
                raise RequestError(subject=step.title, field="delete", value=name, problem="is not there")
        for each in step.apply:
            name = _name_of(each)
            self._objects[name] = _merge(self._objects.get(name, {}), each)

    def documents(self, where: str) -> Iterable[tuple[str, object]]:
        """Return all objects, the oldest first."""
        return [(f"{where}, {name}", each) for name, each in self._objects.items()]

    def write_back(self, run: Run) -> None:
        """Write placements into the pods, as a scheduler would."""
        for outcome in run.outcomes:
            name = f"Pod {outcome.pod.key}"
            if outcome.status is not Status.BOUND or outcome.node is None or name not in self._objects:
                continue
            patch: _Object = {"spec": {"nodeName": outcome.node}, "status": {"phase": "Pending"}}
            if outcome.gpus:
                record = AllocationRecord(node=outcome.node, gpus=outcome.gpus)
                patch["metadata"] = {"annotations": {keys.ALLOCATION: encode_allocation(record)}}
            self._objects[name] = _merge(self._objects[name], patch)


def _name_of(each: _Object) -> str:
    meta = each.get("metadata") or {}
    namespaced = each.get("kind") not in {"Node", "GpuReport", "GpuLedger"}
    prefix = f"{meta.get('namespace', 'default')}/" if namespaced else ""
    return f"{each.get('kind')} {prefix}{meta.get('name')}"


def _merge(old: Any, new: Any) -> Any:  # noqa: ANN401 — any JSON value
    """Lay one JSON value over another: mappings are joined, everything else is replaced, null deletes."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    joined = dict(old)
    for key, value in new.items():
        if value is None:
            joined.pop(key, None)
        else:
            joined[key] = _merge(joined.get(key), value)
    return joined


def _tell_pods(report: RunReport) -> Iterator[str]:
    for pod in report.pods[:_MOST_LINES]:
        head = f"  {pod.status:<9} {pod.pod}"
        if pod.node is None:
            yield f"{head}: {pod.message}"
            for hint in pod.counterfactuals:
                yield f"            → {hint}"
            continue
        cards = ", ".join(f"{format_mib(gpu.mib)} on {gpu.uuid}" for gpu in pod.gpus)
        yield f"{head}: {pod.node}" + (f", {cards}" if cards else "")
        for warning in pod.warnings:
            yield f"            ! {warning}"
    if len(report.pods) > _MOST_LINES:
        yield f"  … and {len(report.pods) - _MOST_LINES} more pods"


def _tell_cards(report: RunReport) -> Iterator[str]:
    for card in report.gpus[:_MOST_LINES]:
        releasing = f" ({card.releasing_mib:,} releasing)" if card.releasing_mib else ""
        unmanaged = "?" if card.unmanaged_mib is None else f"{card.unmanaged_mib:,}"
        yield (
            f"  {card_name(card.node, card.uuid)}: {card.usable_mib:,} usable − {card.margin_mib:,} margin"
            f" − {card.held_mib:,} held{releasing} − {unmanaged} unmanaged = {card.free_mib:,} MiB free"
        )
