"""What a model needs, as a whole."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.models import LLAMA_8B, measured, model_of
from vramline.bench.estimate import read_measured_models
from vramline.errors import RequestError
from vramline.inference.caches import Engine
from vramline.inference.estimate import Estimate, Plan, estimate
from vramline.inference.quantization import quantise_on_load

LLAMA = model_of(LLAMA_8B, "llama")


def part(found: Estimate, name: str) -> float:
    return next(line.expected_mib for line in found.lines if line.part == name) / 1024


@pytest.mark.parametrize(
    ("name", "tp", "weights", "activation", "graphs"),
    [
        pytest.param("redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", 2, 33.88, 1.96, 1.79, id="70B, tp 2"),
        pytest.param("redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", 4, 16.96, 1.97, 1.66, id="70B, tp 4"),
        pytest.param("microsoft/phi-4", 1, 27.39, 1.52, 1.07, id="phi-4"),
        pytest.param("codellama/CodeLlama-7b-Instruct-hf", 1, 12.56, 0.77, 0.89, id="CodeLlama"),
        pytest.param("Qwen/Qwen3-30B-A3B", 1, 56.88, 2.68, 1.41, id="experts"),
        pytest.param("deepseek-ai/DeepSeek-V2-Lite", 1, 29.43, 1.93, 1.57, id="experts and latent attention"),
        pytest.param("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", 1, 5.38, 1.89, 0.96, id="4 bits"),
    ],
)
def test_published_runs_besides_the_table(
    name: str, tp: int, weights: float, activation: float, graphs: float
) -> None:
    """GiB that vLLM 0.19 logged on an H100: the same series as the table of measured runs, not in it.

    The 70B was run in fp8, which takes as much as the int8 of the checkpoint that is read here.
    """
    found = estimate(measured(name), Plan(tp=tp, context=8192, card_mib=81_090))

    assert part(found, "weights") == pytest.approx(weights, rel=0.01)
    assert part(found, "activation") == pytest.approx(activation, rel=0.10)
    bounds = next(line for line in found.lines if line.part == "cuda graphs")
    assert bounds.low_mib <= graphs * 1024 <= bounds.high_mib


QWEN: dict[str, Any] = {
    **LLAMA_8B,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "vocab_size": 152064,
}
SMALL_QWEN: dict[str, Any] = {
    **QWEN,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("config", "plan", "gib"),
    [
        pytest.param(LLAMA_8B, {"engine_version": "0.7"}, 0.22, id="8B on 22 GiB, vLLM 0.7"),
        pytest.param(QWEN, {"engine_version": "0.7", "tp": 2}, 0.19, id="14B at tp 2 on RTX 4090, vLLM 0.7"),
        pytest.param(
            SMALL_QWEN,
            {"engine_version": "0.7", "max_batched_tokens": 32_768},
            2.02,
            id="1.5B on a T4, long batches, vLLM 0.7",
        ),
        pytest.param(LLAMA_8B, {"engine_version": "0.16", "max_num_seqs": 1024}, 4.8, id="8B, vLLM 0.16"),
    ],
)
def test_activation_is_what_older_versions_logged_on_other_cards(
    config: dict[str, Any], plan: dict[str, Any], gib: float
) -> None:
    found = estimate(model_of(config), Plan(context=4096, card_mib=22 * 1024, **plan))

    assert part(found, "activation") == pytest.approx(gib, rel=0.05)


@pytest.mark.parametrize("version", ["newest", "17", "0,7", "v"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(RequestError, match="is no version"):
        estimate(LLAMA, Plan(context=4096, engine_version=version))


def test_an_a100_gets_the_smaller_batch_whatever_its_size() -> None:
    found = estimate(LLAMA, Plan(context=4096, card_mib=81_920, card_model="NVIDIA A100-SXM4-80GB"))

    assert (found.max_num_seqs, found.max_batched_tokens) == (256, 2048)


def test_every_line_shows_its_formula_and_they_add_up() -> None:
    found = estimate(LLAMA, Plan(context=8192, concurrency=4))

    assert all(line.formula for line in found.lines)
    assert found.per_gpu.expected == pytest.approx(sum(line.expected_mib for line in found.lines), abs=6)
    assert part(found, "kv cache") == 4.0


def test_the_fraction_covers_weights_cache_activation_and_libraries_only() -> None:
    """vLLM counts neither its context nor its graphs; a fraction that did would take too much."""
    found = estimate(LLAMA, Plan(context=8192, concurrency=4, card_mib=80 * 1024))
    counted = sum(part(found, name) for name in ("weights", "kv cache", "activation", "non-torch"))

    assert found.card is not None
    assert found.card.fraction == pytest.approx(counted / 80, abs=0.002)
    assert f"--gpu-memory-utilization={found.card.fraction}" in found.flags


def test_tokens_that_fit_a_card_are_those_that_vllm_logged() -> None:
    found = estimate(LLAMA, Plan(context=8192, card_mib=int(79.19 * 1024), memory_fraction=0.95))

    assert found.card is not None
    assert found.card.kv_tokens == pytest.approx(476_016, rel=0.001)


def test_a_smaller_card_gets_the_engines_smaller_batch() -> None:
    large, small = (estimate(LLAMA, Plan(context=8192, card_mib=gib * 1024)) for gib in (80, 24))

    assert (large.max_num_seqs, large.max_batched_tokens) == (1024, 8192)
    assert (small.max_num_seqs, small.max_batched_tokens) == (256, 2048)
    assert part(small, "activation") < part(large, "activation")


def test_eager_has_no_graphs() -> None:
    assert part(estimate(LLAMA, Plan(context=8192, graphs=False)), "cuda graphs") == 0


def test_without_a_context_it_is_the_models_own_and_said() -> None:
    found = estimate(LLAMA, Plan())

    assert found.context == 131_072
    assert any("131,072 is the model's longest" in note for note in found.notes)


def test_float32_checkpoints_are_served_in_two_bytes_unless_asked() -> None:
    wide = model_of({**LLAMA_8B, "torch_dtype": "float32"})
    served, asked = (estimate(wide, Plan(context=8192, dtype=dtype)) for dtype in ("auto", "float32"))

    assert part(asked, "weights") == pytest.approx(2 * part(served, "weights"), rel=0.001)


def test_an_embedding_model_samples_nothing() -> None:
    quiet = model_of({**LLAMA_8B, "architectures": ["LlamaForSequenceClassification"]})

    assert part(estimate(quiet, Plan(context=8192)), "activation") < part(
        estimate(LLAMA, Plan(context=8192)), "activation"
    )


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        pytest.param({"dtype": "int3"}, "--dtype", id="type"),
        pytest.param({"kv_dtype": "int3"}, "--kv-dtype", id="type of the cache"),
        pytest.param({"tp": 3}, "--tp", id="heads"),
        pytest.param({"pp": 99}, "--pp", id="layers"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        estimate(LLAMA, Plan(context=8192, **plan))

    assert caught.value.field == field


def test_a_quantised_checkpoint_is_not_quantised_another_way() -> None:
    fp8 = model_of({**LLAMA_8B, "quantization_config": {"quant_method": "fp8"}})

    with pytest.raises(RequestError, match="the checkpoint is fp8 already"):
        estimate(fp8, Plan(context=8192, quantization=quantise_on_load("awq")))


def test_a_file_that_is_quantised_is_not_quantised_again() -> None:
    """Its architecture names no tensors; a figure made of them would be nothing at all."""
    bare = msgspec.structs.replace(LLAMA.architecture, embedding=(), head=(), layers=())
    packed = msgspec.structs.replace(LLAMA, architecture=bare, file_bytes=2**30, file_numbers=0)

    with pytest.raises(RequestError, match="the checkpoint is as its file is; accepted: the call without it"):
        estimate(packed, Plan(context=8192, quantization=quantise_on_load("fp8")))


PLANS = st.builds(
    Plan,
    engine=st.sampled_from(Engine),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.integers(1, 4),
    context=st.integers(1, 40_000),
    concurrency=st.integers(1, 64),
    kv_dtype=st.sampled_from(["auto", "fp8"]),
    graphs=st.booleans(),
    card_mib=st.none() | st.integers(8_000, 200_000),
)


@given(st.sampled_from(sorted(read_measured_models())), PLANS)
def test_bounds_are_in_order_and_more_tokens_never_need_less(name: str, plan: Plan) -> None:
    found = estimate(measured(name), plan)
    more = estimate(measured(name), msgspec.structs.replace(plan, context=plan.context * 2))  # type: ignore[operator]

    assert all(0 <= line.low_mib <= line.expected_mib <= line.high_mib for line in found.lines)
    assert found.per_gpu.low <= found.per_gpu.expected <= found.per_gpu.high
    assert found.total.expected >= found.per_gpu.expected
    assert more.per_gpu.expected >= found.per_gpu.expected
    assert more.per_gpu.high >= found.per_gpu.high
