"""Which layers look back only so far: the families' rules for sliding and chunked attention."""

import enum

from vramline.inference.fields import Fields

__all__ = ["WindowRule", "read_windows"]

_KINDS = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}


class WindowRule(enum.StrEnum):
    """Where a family puts its windows, unless the config lists its layers one by one."""

    NONE = "none"
    ALL = "all"
    FLAGGED = "flagged"
    """From layer `max_window_layers` on, where `use_sliding_window` is true."""
    ALTERNATE = "alternate"
    """Every second layer, the first among them."""
    EVERY_SIXTH_FULL = "sixth"
    EVERY_FOURTH_FULL = "fourth"


def read_windows(fields: Fields, layers: int, rule: WindowRule) -> tuple[int | None, ...]:
    """Return for each layer how many tokens it looks back; None: all of them."""
    if rule is WindowRule.NONE:
        words = set(fields.words("layer_types") or ["full_attention"])
        if words != {"full_attention"}:
            raise fields.wrong("layer_types", sorted(words), "is not understood here", "full_attention")
        return (None,) * layers
    flagged = rule is not WindowRule.FLAGGED or fields.flag("use_sliding_window", default=False)
    first = fields.maybe_whole("max_window_layers") if rule is WindowRule.FLAGGED else None
    kinds = _read_kinds(fields, layers)
    if not flagged:
        fields.skip("sliding_window")
        return (None,) * layers
    if kinds is None:
        kinds = [_is_windowed(rule, number, fields, first) for number in range(layers)]
    if not any(kinds):
        fields.skip("sliding_window")
        return (None,) * layers
    window = _read_window(fields, rule)
    return tuple(window if windowed else None for windowed in kinds)


def _read_window(fields: Fields, rule: WindowRule) -> int | None:
    """Return the size of the window; a null means that there is none, where the family allows it."""
    if rule is WindowRule.ALL:
        return fields.maybe_whole("sliding_window")
    return fields.whole("sliding_window")


def _read_kinds(fields: Fields, layers: int) -> list[bool] | None:
    """Return what the config says of each layer: whether it has a window."""
    kinds = fields.words("layer_types")
    if kinds is None:
        return None
    if len(kinds) != layers:
        raise fields.wrong("layer_types", len(kinds), f"does not list {layers} layers", f"{layers} words")
    unknown = sorted(set(kinds) - _KINDS.keys())
    if unknown:
        raise fields.wrong("layer_types", unknown[0], "is not understood", ", ".join(_KINDS))
    return [_KINDS[kind] for kind in kinds]


def _is_windowed(rule: WindowRule, number: int, fields: Fields, first: int | None) -> bool:
    match rule:
        case WindowRule.ALL:
            return True
        case WindowRule.FLAGGED:
            return number >= (first or 0)
        case WindowRule.ALTERNATE:
            return number % 2 == 0
        case WindowRule.EVERY_SIXTH_FULL:
            return (number + 1) % fields.whole("sliding_window_pattern", default=6) != 0
        case WindowRule.EVERY_FOURTH_FULL:
            return (number + 1) % fields.whole("sliding_window_pattern", default=4) != 0
        case _:
            return False
