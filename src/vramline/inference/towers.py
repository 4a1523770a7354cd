"""Vision towers and what joins them to the text: counted where the config gives their shape."""

from collections.abc import Callable

import msgspec

from vramline.inference.architecture import Split, Tensor
from vramline.inference.fields import Fields

__all__ = ["TOWERS"]

Tensors = tuple[Tensor, ...]


class _Vit(msgspec.Struct, frozen=True, kw_only=True):
    """A vision transformer."""

    layers: int
    width: int
    intermediate: int
    gated: bool = False
    bias: bool = True
    norm_bias: bool = True


def _blocks(vit: _Vit) -> Tensors:
    """Return all blocks of a vision transformer, equal tensors as copies of one."""
    ups = 2 if vit.gated else 1
    return (
        _many("visual.norm", vit.width, 0, 2 * vit.layers, bias=vit.norm_bias),
        _many("visual.qkv", 3 * vit.width, vit.width, vit.layers, bias=vit.bias),
        _many("visual.proj", vit.width, vit.width, vit.layers, bias=vit.bias, split=Split.IN),
        _many("visual.up", ups * vit.intermediate, vit.width, vit.layers, bias=vit.bias),
        _many("visual.down", vit.width, vit.intermediate, vit.layers, bias=vit.bias, split=Split.IN),
    )


def _many(
    name: str, rows: int, columns: int, copies: int, *, bias: bool = False, split: Split = Split.OUT
) -> Tensor:
    matrix = columns > 0
    return Tensor(name, rows, columns, split if matrix else Split.NONE, copies, bias=bias, linear=matrix)


def _matrix(name: str, rows: int, columns: int, *, bias: bool = True) -> Tensor:
    return _many(name, rows, columns, 1, bias=bias)


def _vector(name: str, rows: int, *, bias: bool = False) -> Tensor:
    return Tensor(name, rows, bias=bias)


def _table(name: str, rows: int, columns: int) -> Tensor:
    return Tensor(name, rows, columns)


def _qwen2_vl(vision: Fields, hidden: int, _top: Fields) -> Tensors:
    width = vision.whole("embed_dim")
    ratio = vision.number("mlp_ratio", default=4)
    merge, patch = vision.whole("spatial_merge_size") ** 2, _video_patch(vision)
    return (
        _table("visual.patch_embed", width, patch),
        *_blocks(_Vit(layers=vision.whole("depth"), width=width, intermediate=int(width * ratio))),
        _vector("visual.merger.ln_q", width, bias=True),
        _matrix("visual.merger.mlp.0", width * merge, width * merge),
        _matrix("visual.merger.mlp.2", vision.whole("hidden_size", default=hidden), width * merge),
    )


def _qwen2_5_vl(vision: Fields, _hidden: int, _top: Fields) -> Tensors:
    width, merge = vision.whole("hidden_size"), vision.whole("spatial_merge_size") ** 2
    shape = _Vit(
        layers=vision.whole("depth"),
        width=width,
        intermediate=vision.whole("intermediate_size"),
        gated=True,
        norm_bias=False,
    )
    return (
        _table("visual.patch_embed", width, _video_patch(vision)),
        *_blocks(shape),
        _vector("visual.merger.ln_q", width),
        _matrix("visual.merger.mlp.0", width * merge, width * merge),
        _matrix("visual.merger.mlp.2", vision.whole("out_hidden_size"), width * merge),
    )


def _qwen3_vl(vision: Fields, _hidden: int, _top: Fields) -> Tensors:
    width, merge = vision.whole("hidden_size"), vision.whole("spatial_merge_size") ** 2
    out, deep = vision.whole("out_hidden_size"), len(vision.numbers("deepstack_visual_indexes") or ())
    shape = _Vit(layers=vision.whole("depth"), width=width, intermediate=vision.whole("intermediate_size"))
    mergers = (
        _many("visual.merger.linear_fc1", width * merge, width * merge, 1 + deep, bias=True),
        _many("visual.merger.linear_fc2", out, width * merge, 1 + deep, bias=True),
        _vector("visual.merger.norm", width, bias=True),
        Tensor("visual.deepstack.norm", width * merge, copies=deep, bias=True),
    )
    return (
        Tensor("visual.patch_embed", width, _video_patch(vision), bias=True),
        _table("visual.pos_embed", vision.whole("num_position_embeddings"), width),
        *_blocks(shape),
        *(tensor for tensor in mergers if tensor.copies),
    )


def _video_patch(vision: Fields) -> int:
    """Return the numbers in a patch: colours × frames × pixels."""
    colours = vision.whole("in_channels", "in_chans", default=3)
    return colours * vision.whole("temporal_patch_size") * vision.whole("patch_size") ** 2


def _gemma3(vision: Fields, hidden: int, _top: Fields) -> Tensors:
    """SigLIP without a head, then one projection."""
    width, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    shape = _Vit(
        layers=vision.whole("num_hidden_layers"),
        width=width,
        intermediate=vision.whole("intermediate_size"),
    )
    return (
        Tensor("vision_tower.patch_embedding", width, 3 * patch**2, bias=True),
        _table("vision_tower.position_embedding", (vision.whole("image_size") // patch) ** 2, width),
        *_blocks(shape),
        _vector("vision_tower.post_layernorm", width, bias=True),
        _vector("multi_modal_projector.mm_soft_emb_norm", width),
        _matrix("multi_modal_projector.mm_input_projection", hidden, width, bias=False),
    )


def _clip(vision: Fields, hidden: int, _top: Fields) -> Tensors:
    """CLIP with its two outer norms, then a projector of two layers."""
    width, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    shape = _Vit(
        layers=vision.whole("num_hidden_layers"),
        width=width,
        intermediate=vision.whole("intermediate_size"),
    )
    return (
        _vector("vision_tower.class_embedding", width),
        _table("vision_tower.patch_embedding", width, 3 * patch**2),
        _table("vision_tower.position_embedding", (vision.whole("image_size") // patch) ** 2 + 1, width),
        *_blocks(shape),
        _vector("vision_tower.pre_layrnorm", width, bias=True),
        _vector("vision_tower.post_layernorm", width, bias=True),
        _matrix("multi_modal_projector.linear_1", hidden, width),
        _matrix("multi_modal_projector.linear_2", hidden, hidden),
    )


def _mistral3(vision: Fields, hidden: int, top: Fields) -> Tensors:
    """Pixtral, then patches merged and projected."""
    width, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    merge = top.whole("spatial_merge_size", default=2) ** 2
    shape = _Vit(
        layers=vision.whole("num_hidden_layers"),
        width=width,
        intermediate=vision.whole("intermediate_size"),
        gated=True,
        bias=False,
        norm_bias=False,
    )
    return (
        _table("vision_tower.patch_conv", width, 3 * patch**2),
        *_blocks(shape),
        _vector("vision_tower.ln_pre", width),
        _vector("multi_modal_projector.norm", width),
        _matrix("multi_modal_projector.patch_merger", width, width * merge, bias=False),
        _matrix("multi_modal_projector.linear_1", hidden, width, bias=False),
        _matrix("multi_modal_projector.linear_2", hidden, hidden, bias=False),
    )


def _kimi_vl(vision: Fields, hidden: int, _top: Fields) -> Tensors:
    width, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    places = vision.whole("init_pos_emb_height") * vision.whole("init_pos_emb_width")
    merged = width * 4
    shape = _Vit(
        layers=vision.whole("num_hidden_layers"),
        width=width,
        intermediate=vision.whole("intermediate_size"),
    )
    return (
        Tensor("vision_tower.patch_embed", width, 3 * patch**2, bias=True),
        _table("vision_tower.pos_emb", places, width),
        *_blocks(shape),
        _vector("vision_tower.final_layernorm", width, bias=True),
        _vector("multi_modal_projector.pre_norm", width, bias=True),
        _matrix("multi_modal_projector.linear_1", merged, merged),
        _matrix("multi_modal_projector.linear_2", hidden, merged),
    )


def _mllama(vision: Fields, hidden: int, _top: Fields) -> Tensors:
    width, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    local, outer = vision.whole("num_hidden_layers"), vision.whole("num_global_layers")
    tiles, ratios = vision.whole("max_num_tiles"), vision.length("supported_aspect_ratios") + 1
    places = (vision.whole("image_size") // patch) ** 2 + 1
    shape = _Vit(
        layers=local + outer, width=width, intermediate=vision.whole("intermediate_size"), bias=False
    )
    mlp_biases = (local + outer) * (shape.intermediate + width)
    return (
        _vector("vision_model.class_embedding", width),
        _table("vision_model.patch_embedding", width, 3 * patch**2),
        _table("vision_model.position_embedding", places, width),
        _vector("vision_model.gate", 1),
        _table("vision_model.tile_positions", ratios, tiles * places * width),
        _table("vision_model.tile_embeddings", 2 * ratios, tiles * width),
        _vector("vision_model.tile_gates", 2),
        _vector("vision_model.norms", 2 * width, bias=True),
        *_blocks(shape),
        _vector("vision_model.mlp_biases", mlp_biases),
        _vector("vision_model.global_gates", 2 * outer),
        _matrix("multi_modal_projector", hidden, vision.whole("vision_output_dim")),
    )


def _llama4(vision: Fields, hidden: int, _top: Fields) -> Tensors:
    width, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    places = (vision.whole("image_size") // patch) ** 2 + 1
    middle, out = vision.whole("projector_input_dim"), vision.whole("projector_output_dim")
    ratio = vision.number("pixel_shuffle_ratio", default=0.5)
    shape = _Vit(
        layers=vision.whole("num_hidden_layers"),
        width=width,
        intermediate=vision.whole("intermediate_size"),
    )
    return (
        _vector("vision_model.class_embedding", width),
        _table("vision_model.patch_embedding", width, 3 * patch**2),
        _table("vision_model.position_embedding", places, width),
        _vector("vision_model.norms", 2 * width, bias=True),
        *_blocks(shape),
        _matrix("vision_model.vision_adapter.fc1", middle, round(width / ratio**2), bias=False),
        _matrix("vision_model.vision_adapter.fc2", out, middle, bias=False),
        _matrix("multi_modal_projector", hidden, vision.whole("vision_output_dim"), bias=False),
    )


TOWERS: dict[str, Callable[[Fields, int, Fields], Tensors]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "gemma3": _gemma3,
    "llava": _clip,
    "mistral3": _mistral3,
    "kimi_vl": _kimi_vl,
    "mllama": _mllama,
    "llama4": _llama4,
}
"""By the `model_type` of the whole model: made from vision config, hidden size of the text, whole config."""
