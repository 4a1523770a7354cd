"""From a config to parameters: exact, or refused by the field's name."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.models import LLAMA_8B, NEXT_80B, data_folder
from vramline.bench.estimate import read_measured_models
from vramline.errors import RequestError
from vramline.inference.architecture import AttentionCache, count_parameters
from vramline.inference.hf_config import known_model_types, read_config

PUBLISHED = {
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "google/gemma-2-2b-it": 2_614_341_888,
    "google/gemma-2-27b-it": 27_227_128_320,
    "google/gemma-7b": 8_537_680_896,
    "google/gemma-3-4b-it": 4_300_079_472,
    "ibm-granite/granite-3.1-2b-instruct": 2_533_531_648,
    "ibm-granite/granite-3.1-8b-instruct": 8_170_848_256,
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": 24_011_361_280,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 46_702_792_704,
    "microsoft/phi-4": 14_659_507_200,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-72B-Instruct": 72_706_203_648,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "openai/gpt-oss-20b": 20_914_757_184,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108_641_793_536,
    "codellama/CodeLlama-7b-Instruct-hf": 6_738_546_688,
}

FILES = {
    "baichuan2_7b": 7_505_973_248,
    "chatglm3_6b": 6_243_584_000,
    "command_r_35b": 34_980_831_232,
    "deepseek_v3": 671_026_419_200,
    "e5_mistral_7b": 7_110_660_096,
    "exaone_7.8b": 7_818_448_896,
    "gemma3": 27_432_406_640,
    "gemma3_text": 999_885_952,
    "gemma_2_2b": 2_614_341_888,
    "gemma_2_9b": 9_241_705_984,
    "gemma_7b": 8_537_680_896,
    "glm4_9b": 9_399_951_360,
    "gpt_oss_120b": 116_829_156_672,
    "gpt_oss_20b": 20_914_757_184,
    "internlm2_7b": 7_737_708_544,
    "llama3_1": 70_553_706_496,
    "llama3_1_405b": 405_853_388_800,
    "llama3_2_11b_vision": 10_670_220_835,
    "llama3_2_1b": 1_235_814_400,
    "llama3_2_3b": 3_212_749_824,
    "llama4": 401_583_781_376,
    "llama4_scout_17b_16e": 108_641_793_536,
    "llava_1.5_7b_hf": 7_063_427_072,
    "mistral": 7_241_732_096,
    "mixtral": 46_702_792_704,
    "phi3": 3_821_079_552,
    "phi3small": 7_392_272_384,
    "phimoe": 41_873_153_344,
    "qwen2.5_0.5b": 494_032_768,
    "qwen2.5_1.5b": 1_543_714_304,
    "qwen2.5_14b": 14_770_033_664,
    "qwen2.5_32b": 32_763_876_352,
    "qwen2.5_3b": 3_085_938_688,
    "qwen2.5_72b": 72_706_203_648,
    "qwen2.5_7b": 7_615_616_512,
    "qwen2.5_vl_7b": 8_292_166_656,
    "qwen2_vl_2b": 2_208_985_600,
    "qwen2_vl_7b": 8_291_375_616,
    "qwen3_30b": 30_532_122_624,
    "qwen3_4b": 4_022_468_096,
    "qwen3_8b_fp8": 8_190_735_360,
    "qwen3_vl_2b_instruct": 2_127_532_032,
    "qwen3_vl_30b_a3b_instruct": 31_070_754_032,
    "qwen_7b": 7_721_324_544,
    "smollm_1.7b": 1_711_376_384,
    "stablelm_3b": 2_795_443_200,
}
"""Real configs, and the parameters that their authors publish."""

REFUSED = {
    "bge_large": "model_type",
    "clip_vision_model": "model_type",
    "config_sentence_transformers": "model_type",
    "deepseek_vl2_tiny": "vision_config",
    "janus_1.3b": "vision_config",
    "llava_v1.5_7b": "mm_vision_tower",
    "phi3_v": "img_processor",
    "qwen3_5_27b": "text_config.head_dim",
    "qwen3_5_35b_a3b": "text_config.head_dim",
}


def config_of(name: str) -> dict[str, Any]:
    text = (data_folder() / "configs" / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_published(name: str) -> None:
    assert count_parameters(read_config(read_measured_models()[name], name)) == PUBLISHED[name]


@pytest.mark.parametrize("name", FILES)
def test_parameters_of_real_configs_are_as_published(name: str) -> None:
    assert count_parameters(read_config(config_of(name), name)) == FILES[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_config_that_does_not_say_enough_is_refused_by_the_field(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        count_parameters(read_config(config_of(name), name))

    assert caught.value.field == REFUSED[name]
    assert caught.value.accepted


def test_every_real_config_is_counted_or_refused() -> None:
    refused = []
    for file in sorted((data_folder() / "configs").glob("*.json")):
        try:
            assert count_parameters(read_config(json.loads(file.read_text(encoding="utf-8")), file.stem)) > 0
        except RequestError:
            refused.append(file.stem)

    assert refused == sorted(REFUSED)


def test_a_state_space_model_keeps_keys_and_values_in_every_fourth_layer() -> None:
    built = read_config(NEXT_80B, "next")

    assert sum(isinstance(layer.cache, AttentionCache) for layer in built.layers) == 12
    assert count_parameters(built) == pytest.approx(79.67e9, rel=0.001)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"model_type": "mamba2"}, "model_type", id="a family that is not known"),
        pytest.param({"num_experts": 8}, "num_experts", id="experts in a dense family"),
        pytest.param({"sliding_window": 4096}, "sliding_window", id="a window where none belongs"),
        pytest.param({"kv_lora_rank": 512}, "kv_lora_rank", id="latent attention where none belongs"),
        pytest.param({"layer_types": ["linear_attention"] * 32}, "layer_types", id="layers of another kind"),
        pytest.param({"mamba_expand": 2}, "mamba_expand", id="a state space beside attention"),
        pytest.param({"vision_config": {"depth": 32}}, "vision_config", id="a tower on a text model"),
        pytest.param({"hidden_size": -1}, "hidden_size", id="a negative size"),
        pytest.param({"hidden_size": "4096"}, "hidden_size", id="a size in quotes"),
        pytest.param({"vocab_size": 2**50}, "vocab_size", id="a size beyond reason"),
        pytest.param({"num_hidden_layers": 10**11}, "num_hidden_layers", id="layers beyond reason"),
        pytest.param({"num_attention_heads": 33}, "num_attention_heads", id="heads that do not divide"),
        pytest.param({"attention_bias": "yes"}, "attention_bias", id="a flag that is a word"),
    ],
)
def test_a_field_that_is_wrong_or_not_understood_is_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_config({**LLAMA_8B, **change}, "config.json")

    assert caught.value.field == field


def test_a_missing_field_is_named_with_the_spellings_that_are_accepted() -> None:
    config = dict(read_measured_models()["Qwen/Qwen3-8B"])
    del config["vocab_size"]

    with pytest.raises(RequestError, match="vocab_size: is missing; accepted: a number in vocab_size or"):
        read_config(config, "config.json")


def test_a_default_of_the_class_is_said() -> None:
    built = read_config(read_measured_models()["google/gemma-3-4b-it"], "gemma")

    assert any("text_config.vocab_size is not in the config: 262,208" in note for note in built.notes)


def test_an_unknown_family_is_told_which_are_known() -> None:
    with pytest.raises(RequestError) as caught:
        read_config({"model_type": "jamba"}, "config.json")

    assert set(known_model_types()) <= set(caught.value.accepted.split(", "))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**13) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(sorted(read_measured_models())), st.data())
def test_a_mangled_config_is_counted_or_refused_but_never_breaks(name: str, data: st.DataObject) -> None:
    config = dict(read_measured_models()[name])
    for field in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[field] = data.draw(JSON_VALUES)
    with contextlib.suppress(RequestError):
        assert count_parameters(read_config(config, name)) > 0
