"""What a model remembers, against figures that engines print."""

import pytest

from inference.models import LLAMA_8B, NEXT_80B, measured, model_of
from vramline.inference.caches import Engine, cache_bytes_per_token, stage_caches


@pytest.mark.parametrize(
    ("name", "tp", "number", "bytes_a_token"),
    [
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 1, 2, 131_072, id="grouped"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 4, 2, 32_768, id="tp 4"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 16, 2, 16_384, id="more GPUs than heads"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 1, 1, 65_536, id="fp8"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite", 1, 2, 31_104, id="latent"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite", 4, 2, 31_104, id="latent is not divided"),
        pytest.param("google/gemma-2-27b-it", 1, 2, 376_832, id="half of the layers with a window"),
        pytest.param("google/gemma-3-4b-it", 1, 2, 143_360, id="groups of five, the last one padded"),
        pytest.param("openai/gpt-oss-20b", 2, 2, 24_576, id="windows at tp 2"),
    ],
)
def test_bytes_a_token_in_vllm(name: str, tp: int, number: int, bytes_a_token: int) -> None:
    built = measured(name).architecture

    assert cache_bytes_per_token(built, Engine.VLLM, number_bytes=number, tp=tp) == bytes_a_token


def need(config: dict[str, object], engine: Engine, context: int, sequences: int = 1) -> int:
    built = model_of(config).architecture
    tokens = (context, sequences, 2048)
    return stage_caches(built, engine, number_bytes=2, tp=1, pp=1, tokens=tokens)[0].expected


MISTRAL = {**LLAMA_8B, "model_type": "mistral", "sliding_window": 4096}


def test_a_window_stops_growing_in_vllm_but_not_in_sglang() -> None:
    per_token = 131_072

    assert need(MISTRAL, Engine.VLLM, 2048) == 2048 * per_token
    assert need(MISTRAL, Engine.VLLM, 32_768) == need(MISTRAL, Engine.VLLM, 65_536) == (4096 + 16) * per_token
    assert need(MISTRAL, Engine.SGLANG, 32_768) == 32_768 * per_token


def test_a_window_that_is_switched_off_is_none() -> None:
    config = {**LLAMA_8B, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}

    assert need(config, Engine.VLLM, 32_768) == 32_768 * 131_072


def test_state_is_kept_for_each_sequence_however_long() -> None:
    one, two = (need(NEXT_80B, Engine.VLLM, 16, count) for count in (1, 2))
    per_token = 12 * 2 * 2 * 256 * 2
    state = 36 * (2 * 8192 * 3 + 4 * 32 * 128 * 128)

    assert (one, two) == (16 * per_token + state, 2 * (16 * per_token + state))


def test_an_engine_without_latent_attention_for_a_model_keeps_it_expanded() -> None:
    config: dict[str, object] = {
        "model_type": "minicpm3",
        "hidden_size": 2560,
        "num_hidden_layers": 62,
        "intermediate_size": 6400,
        "num_attention_heads": 40,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "q_lora_rank": 768,
        "kv_lora_rank": 256,
        "vocab_size": 73448,
        "max_position_embeddings": 32768,
    }

    assert need(config, Engine.SGLANG, 16) == 16 * 62 * (256 + 32) * 2
    assert need(config, Engine.VLLM, 16) == 16 * 62 * 40 * 2 * 96 * 2
