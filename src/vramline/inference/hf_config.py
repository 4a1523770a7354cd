"""From a Hugging Face `config.json` to an architecture, or a refusal that names the field."""

from collections.abc import Mapping

import msgspec

from vramline.errors import RequestError
from vramline.inference.architecture import Architecture, Tensor
from vramline.inference.decoders import FAMILIES, build_decoder
from vramline.inference.fields import Fields
from vramline.inference.special import SPECIAL
from vramline.inference.towers import TOWERS

__all__ = ["known_model_types", "read_config"]

_TEXT_OF = {
    "deepseek_vl_v2": "deepseek_v2",
    "gemma3": "gemma3_text",
    "kimi_vl": "deepseek_v3",
    "llama4": "llama4_text",
    "llava": "llama",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "multi_modality": "llama",
    "phi3_v": "phi3",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
}
"""The text part of models that see."""

_ALIASES = {
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}

_ENCODERS = frozenset({"bert", "clip", "clip_vision_model", "distilbert", "roberta", "siglip", "xlm-roberta"})


def known_model_types() -> tuple[str, ...]:
    """Return every `model_type` that is understood."""
    return tuple(sorted({*FAMILIES, *SPECIAL, *_TEXT_OF}))


def read_config(data: object, subject: str) -> Architecture:
    """Read one parsed `config.json`; raises `RequestError` where a part of the model is not understood."""
    if not isinstance(data, Mapping):
        raise RequestError(subject=subject, problem="is not an object", accepted="a config.json")
    top = Fields(data, subject=subject)
    model_type = top.text("model_type")
    if model_type in _TEXT_OF:
        built, fields = _read_wrapped(top, model_type)
    else:
        built, fields = _build_text(top, _ALIASES.get(model_type, model_type), tied=None), [top]
    assumed = [
        f"{name} is not in the config: {value:,}, the default of its class"
        for each in fields
        for name, value in each.assumed.items()
    ]
    dtype = built.dtype or top.text("torch_dtype", "dtype")
    named = msgspec.structs.replace(built, model_type=model_type, dtype=dtype, notes=(*built.notes, *assumed))
    return _with_head_of(top, named)


def _build_text(fields: Fields, model_type: str, *, tied: bool | None) -> Architecture:
    if model_type in FAMILIES:
        built = build_decoder(fields, model_type, tied=tied)
    elif model_type in SPECIAL:
        built = SPECIAL[model_type](fields, model_type, tied=tied)
    elif model_type in _ENCODERS:
        raise fields.wrong(
            "model_type",
            model_type,
            "is an encoder: it keeps no cache and samples nothing, so this estimate does not apply",
            "a model that generates text",
        )
    else:
        raise fields.wrong(
            "model_type",
            model_type or None,
            "is not understood" if model_type else "is missing",
            ", ".join(known_model_types()),
        )
    fields.refuse_unread(model_type)
    return built


def _read_wrapped(top: Fields, model_type: str) -> tuple[Architecture, list[Fields]]:
    """Read a model that sees: its text part stands in an object of its own, or among the other fields."""
    text = top.child("text_config", "language_config", "llm_config")
    top.skip("vision_config")
    told = top.flag("tie_word_embeddings", default=False) if top.has("tie_word_embeddings") else None
    inner = text if text is not None else top
    inner_type = inner.text("model_type") if text is not None else ""
    built = _build_text(inner, _ALIASES.get(inner_type, inner_type) or _TEXT_OF[model_type], tied=told)
    vision = top.child("vision_config")
    towers: tuple[Tensor, ...] = ()
    uncounted = None
    if vision is not None and model_type in TOWERS:
        towers = TOWERS[model_type](vision, built.hidden, top)
    else:
        uncounted = _uncounted(top, model_type)
    if inner is not top:
        top.refuse_unread(model_type)
    return msgspec.structs.replace(built, towers=towers, uncounted=uncounted), [inner]


def _uncounted(top: Fields, model_type: str) -> RequestError:
    """Say that the weights of the part that sees are not described."""
    named = next(
        (name for name in ("vision_config", "img_processor", "mm_vision_tower") if top.has(name)),
        "vision_config",
    )
    return RequestError(
        subject=top.subject,
        field=named,
        problem=f"does not give the shape of the vision part of {model_type}: its weights cannot be counted",
        accepted="the model's directory, whose files tell their sizes",
    )


def _with_head_of(top: Fields, built: Architecture) -> Architecture:
    """Replace the head of models that do not sample: embedding, classification and reward models."""
    named = next(iter(top.words("architectures") or ()), "")
    if named.endswith(("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")) or not named:
        return built
    if built.model_type == "chatglm":
        return built  # its architecture is called a model, and generates
    head = tuple(tensor for tensor in built.head if tensor.name != "lm_head")
    if not named.endswith("Model") or named.endswith("RewardModel"):
        labels = max(top.length("id2label"), 1)
        head = (*head, Tensor("score", labels, built.hidden))
    return msgspec.structs.replace(
        built,
        head=head,
        generates=False,
        notes=(*built.notes, f"{named} samples no tokens: it has no language-model head"),
    )
