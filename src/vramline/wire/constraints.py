"""Which cards and which mode a pod's annotations choose, once it asks for a GPU."""

from collections.abc import Mapping

from vramline.errors import RequestError
from vramline.model.ask import Constraints, PolicyName, RealtimeMode
from vramline.wire import keys
from vramline.wire.uuids import card_of

__all__ = ["read_constraints", "read_policy", "read_realtime"]

_POLICIES = {"binpack": PolicyName.BINPACK, "spread": PolicyName.SPREAD}
_BOOLEANS = {"true": True, "false": False}


def read_constraints(annotations: Mapping[str, str], subject: str) -> Constraints:
    """Read the annotations that choose cards by model, UUID and NUMA node."""
    use_models = _read_list(annotations, keys.HAMI_USE_TYPE, subject)
    avoid_models = _read_list(annotations, keys.HAMI_NOUSE_TYPE, subject)
    use_uuids = _read_list(annotations, keys.HAMI_USE_UUID, subject)
    avoid_uuids = _read_list(annotations, keys.HAMI_NOUSE_UUID, subject)
    constraints = Constraints(
        use_models=tuple(word.lower() for word in use_models),
        avoid_models=tuple(word.lower() for word in avoid_models),
        use_uuids=tuple(card_of(uuid) for uuid in use_uuids),
        avoid_uuids=tuple(card_of(uuid) for uuid in avoid_uuids),
        numa_bind=_read_boolean(annotations, keys.HAMI_NUMA_BIND, subject) or False,
    )
    _refuse_both(constraints.use_models, constraints.avoid_models, "type", subject)
    _refuse_both(constraints.use_uuids, constraints.avoid_uuids, "uuid", subject)
    return constraints


def read_policy(annotations: Mapping[str, str], key: str, subject: str) -> PolicyName | None:
    """Read one of HAMi's two policy annotations."""
    word = annotations.get(key)
    if word is None:
        return None
    if word not in _POLICIES:
        raise RequestError(
            subject=subject,
            field=f"annotation {key}",
            value=word,
            problem="is not a policy that Vramline follows",
            accepted="binpack or spread",
        )
    return _POLICIES[word]


def read_realtime(annotations: Mapping[str, str], subject: str) -> tuple[RealtimeMode | None, bool | None]:
    """Return the pod's own mode, and whether it switched the check on or off.

    "On" names no mode: it means the one in force, or strict where that is disabled. That is for those who
    know what is in force to resolve.
    """
    word = annotations.get(keys.REALTIME_CHECK)
    enabled = _read_boolean(annotations, keys.HAMI_ENABLE_REALTIME, subject)
    if word is None:
        return (RealtimeMode.DISABLED if enabled is False else None), enabled
    if word not in list(RealtimeMode):
        raise RequestError(
            subject=subject,
            field=f"annotation {keys.REALTIME_CHECK}",
            value=word,
            problem="is not a mode",
            accepted="strict, warning or disabled",
        )
    mode = RealtimeMode(word)
    if enabled is not None and enabled is (mode is RealtimeMode.DISABLED):
        raise RequestError(
            subject=subject,
            field=f"annotations {keys.REALTIME_CHECK} and {keys.HAMI_ENABLE_REALTIME}",
            problem=f"contradict each other ({word} and {str(enabled).lower()})",
            accepted="one of them",
        )
    return mode, enabled


def _read_list(annotations: Mapping[str, str], key: str, subject: str) -> tuple[str, ...]:
    text = annotations.get(key)
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise RequestError(
            subject=subject,
            field=f"annotation {key}",
            value=text,
            problem="names nothing",
            accepted="a comma list, or no such annotation",
        )
    return words


def _read_boolean(annotations: Mapping[str, str], key: str, subject: str) -> bool | None:
    text = annotations.get(key)
    if text is None:
        return None
    if text not in _BOOLEANS:
        raise RequestError(
            subject=subject,
            field=f"annotation {key}",
            value=text,
            problem="is neither true nor false",
            accepted='"true" or "false"',
        )
    return _BOOLEANS[text]


def _refuse_both(use: tuple[str, ...], avoid: tuple[str, ...], what: str, subject: str) -> None:
    both = [word for word in use if word in avoid]
    if both:
        first, second = (
            (keys.HAMI_USE_TYPE, keys.HAMI_NOUSE_TYPE)
            if what == "type"
            else (keys.HAMI_USE_UUID, keys.HAMI_NOUSE_UUID)
        )
        raise RequestError(
            subject=subject,
            field=f"annotations {first} and {second}",
            value=both[0],
            problem="is in both",
            accepted="in one of them",
        )
