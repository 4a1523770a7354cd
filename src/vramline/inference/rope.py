"""Tables of rotary positions: engines work them out once, and keep them beside the weights."""

from vramline.inference.architecture import Architecture, AttentionCache
from vramline.inference.fields import Fields

__all__ = ["count_rope_numbers"]

_VISION_POSITIONS = 4
"""Tables with separate positions for images are made this many times as long."""


def count_rope_numbers(fields: Fields, inner: Architecture, positions: int | None) -> int:
    """Return how many numbers the tables hold; positions are those of the model, not of a shorter context."""
    width = fields.whole("qk_rope_head_dim") if inner.latent else _head_dim(inner)
    if positions is None or width is None:
        return 0
    width = int(width * fields.number("partial_rotary_factor", default=1.0))
    stretched = _stretched(fields, positions)
    local = (
        positions if fields.maybe_whole("rope_local_base_freq") or inner.model_type == "gemma3_text" else 0
    )
    return (stretched + local) * width


def _head_dim(inner: Architecture) -> int | None:
    caches = (layer.cache for layer in inner.layers)
    return next((cache.width // 2 for cache in caches if isinstance(cache, AttentionCache)), None)


def _stretched(fields: Fields, positions: int) -> int:
    """Return the positions that a scaling of the model's rotary angles makes room for."""
    scaling = fields.child("rope_scaling", "rope_parameters")
    if scaling is None:
        return positions
    if scaling.has("mrope_section"):
        return positions * _VISION_POSITIONS
    kind = scaling.text("rope_type") or scaling.text("type")
    factor = scaling.number("factor", default=1.0)
    match kind:
        case "linear" | "dynamic":
            return int(positions * factor)
        case "yarn" | "deepseek_yarn":
            original = scaling.maybe_whole("original_max_position_embeddings")
            return int((original or positions) * factor)
        case _:
            return positions
