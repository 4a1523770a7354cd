"""Events: why a pod waits, that one was placed against the card's word, and what outlived its pod.

Whoever is asked tells, and only the kube-scheduler that leads asks, so every event has one author.
kube-scheduler itself writes the condition PodScheduled, without figures; `scheduler.conditions` writes ours.
"""

from collections.abc import Callable

from vramline.explain.ghosts import Ghost, say_ghost
from vramline.explain.history import DecisionRecord, History, PodOutcome
from vramline.explain.message import warning_sentences
from vramline.kube.client import KubeClient
from vramline.kube.events import Journal, Notice, Recorder, Regarding, Reporter, Severity
from vramline.model.decision import Decision
from vramline.model.reason import WarningCode
from vramline.wire.keys import GROUP

__all__ = ["TellingHistory", "notice_of", "notice_of_ghost", "notice_of_warning", "open_recorder"]

_LIFE_S = 3600.0
"""API servers keep an event for an hour; the same reason is news again after that."""

_CONTROLLER = f"{GROUP}/scheduler"
_ACTION = "Placing"


class TellingHistory(History):
    """A history that passes on what pods wait for."""

    def __init__(
        self,
        tell: Callable[[Notice], None],
        capacity: int = 1_000,
        *,
        hear: Callable[[DecisionRecord], None] = lambda _: None,
    ) -> None:
        """`hear` gets every record that is written down at once: those of pods that wait."""
        super().__init__(capacity)
        self._tell = tell
        self._hear = hear

    def add(self, record: DecisionRecord, case: Callable[[], object] | None = None) -> DecisionRecord:
        """Keep a record, and tell about the pod if it is one that waits."""
        self._hear(record)
        notice = notice_of(record)
        if notice is not None:
            self._tell(notice)
        return super().add(record, case)


def notice_of(record: DecisionRecord) -> Notice | None:
    """Say why a pod waits; None: it does not, or for no reason of ours."""
    reason = record.explanation.reason
    if record.outcome is not PodOutcome.PENDING or reason is None:
        return None
    namespace, _, name = record.pod.partition("/")
    return Notice(
        regarding=Regarding(kind="Pod", name=name, namespace=namespace, uid=record.pod_uid),
        reason=reason,
        action=_ACTION,
        note=record.explanation.message,
        severity=Severity.WARNING,
    )


def notice_of_warning(decision: Decision) -> Notice:
    """Say of a pod that it is placed where strict mode would have refused it."""
    namespace, _, name = decision.ask.pod.partition("/")
    return Notice(
        regarding=Regarding(kind="Pod", name=name, namespace=namespace, uid=decision.ask.pod_uid),
        reason=WarningCode.STRICT_WOULD_REFUSE,
        action=_ACTION,
        note="; ".join(warning_sentences(decision.warnings, cards=decision.ask.gpus)),
        severity=Severity.WARNING,
    )


def notice_of_ghost(ghost: Ghost) -> Notice:
    """Say on its Node that a pod is gone and its memory is not."""
    return Notice(
        regarding=Regarding(kind="Node", name=ghost.node, uid=ghost.node),
        reason="GhostMemory",
        action="Releasing",
        note=f"GPU {ghost.gpu}: {say_ghost(ghost)}",
        severity=Severity.WARNING,
    )


def open_recorder(client: KubeClient, instance: str) -> Recorder:
    """Return a recorder that says the same thing about the same pod once an hour at most."""
    journal = Journal(repeat_s=_LIFE_S, forget_s=_LIFE_S)
    return Recorder(client, Reporter(_CONTROLLER, instance), journal=journal)
