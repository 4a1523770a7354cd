"""From settings to the rules of a decision, and to the mode that is in force for one pod."""

from vramline.model.ask import Ask, RealtimeMode
from vramline.model.node import NodePool
from vramline.model.rules import Rules, rules_for
from vramline.settings.schema import Settings, StaleObservation, UnsizedAsk
from vramline.wire.admission_options import AdmissionOptions

__all__ = ["admission_from", "effective_mode", "pool_from", "rules_from"]


def rules_from(settings: Settings) -> Rules:
    """Return the rules that hold where a pod says nothing itself; `model.rules.rules_for` adds the pod."""
    return Rules(
        mode=settings.realtime_mode,
        policy=settings.policy,
        max_age_s=settings.observation_max_age_s,
        stream_max_age_s=settings.observation_max_age_stream_s,
        stale_refuses=settings.stale_observation is StaleObservation.REFUSE,
        unsized_is_whole=settings.unsized_ask is UnsizedAsk.WHOLE,
    )


def effective_mode(settings: Settings, ask: Ask) -> RealtimeMode:
    """Return the mode in force for one pod.

    Precedence: pod annotation, then flag, then environment, then file, then default. Of a pod's own
    annotations the mode wins over the switch.
    """
    return rules_for(rules_from(settings), ask).mode


def pool_from(settings: Settings) -> NodePool | None:
    """Return the pool of nodes that GPU pods may go to; None: all nodes."""
    key = settings.node_pool_label_key
    return NodePool(key, settings.node_pool_label_value) if key else None


def admission_from(settings: Settings) -> AdmissionOptions:
    """Return how the webhook treats pods that ask for GPUs."""
    return AdmissionOptions(
        scheduler_name=settings.scheduler_name,
        scheduler_name_policy=settings.scheduler_name_policy,
        backend=settings.backend,
        makes_reservations=bool(settings.reservation_image),
    )
