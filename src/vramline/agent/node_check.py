"""The node's own mode of the real-time check, from the environment of its agent.

`HAMI_REALTIME_CHECK_MODE` names a mode, `HAMI_ENABLE_REALTIME_CHECK` is a switch on top of it; both mean what
they mean to the scheduler, but for this node alone.
"""

from collections.abc import Mapping

from vramline.errors import RequestError
from vramline.model.ask import RealtimeMode
from vramline.model.rules import mode_when_enabled
from vramline.settings.values import as_switch, one_of
from vramline.wire.report_v1alpha1 import NodeCheck

__all__ = ["read_node_check"]

_MODE, _ENABLE = "HAMI_REALTIME_CHECK_MODE", "HAMI_ENABLE_REALTIME_CHECK"


def read_node_check(environment: Mapping[str, str]) -> NodeCheck | None:
    """Return the node's mode; None: its environment does not say. Raises `RequestError`.

    >>> read_node_check({"HAMI_ENABLE_REALTIME_CHECK": "false"})
    <NodeCheck.DISABLED: 'disabled'>
    """
    mode, enabled = environment.get(_MODE, "").strip(), environment.get(_ENABLE, "").strip()
    try:
        named = one_of(RealtimeMode)(mode) if mode else None
    except ValueError as wrong:
        raise _mistake(_MODE, mode, wrong, ", ".join(RealtimeMode)) from None
    try:
        switch = as_switch(enabled) if enabled else None
    except ValueError as wrong:
        raise _mistake(_ENABLE, enabled, wrong, "true, false") from None
    if named is None:
        return {None: None, True: NodeCheck.ENABLED, False: NodeCheck.DISABLED}[switch]
    return NodeCheck(mode_when_enabled(named, enabled=switch))


def _mistake(variable: str, value: str, wrong: ValueError, accepted: str) -> RequestError:
    return RequestError(
        subject="environment", field=variable, value=value, problem=str(wrong), accepted=accepted
    )
