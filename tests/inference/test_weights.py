"""Weights on each GPU."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.models import LLAMA_8B, measured, model_of
from vramline.bench.estimate import read_measured_models
from vramline.errors import RequestError
from vramline.inference.weights import check_parallelism, layers_of_stages, stage_weights


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [
        pytest.param(32, 4, [8, 8, 8, 8], id="even"),
        pytest.param(62, 4, [15, 16, 16, 15], id="two left over"),
        pytest.param(5, 1, [5], id="one stage"),
    ],
)
def test_layers_are_dealt_out_to_stages(layers: int, pp: int, sizes: list[int]) -> None:
    assert [len(stage) for stage in layers_of_stages(layers, pp)] == sizes


QWEN_7B: dict[str, Any] = {
    **LLAMA_8B,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
QWEN_14B: dict[str, Any] = {
    **QWEN_7B,
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}


@pytest.mark.parametrize(
    ("config", "tp", "gib"),
    [
        pytest.param(QWEN_7B, 1, 14.2488, id="Qwen2.5-7B-Instruct, vLLM 0.10"),
        pytest.param({**QWEN_7B, "max_position_embeddings": 131072}, 1, 14.2717, id="Qwen2.5-7B, vLLM 0.8"),
        pytest.param(LLAMA_8B, 1, 14.9889, id="Llama-3.1-8B on an L40S, vLLM 0.8"),
        pytest.param({**LLAMA_8B, "max_position_embeddings": 8192}, 1, 14.96, id="Llama-3-8B, vLLM 0.6"),
        pytest.param({**LLAMA_8B, "max_position_embeddings": 8192}, 2, 7.48, id="Llama-3-8B, tp 2, vLLM 0.6"),
        pytest.param(QWEN_14B, 2, 13.9476, id="Qwen2.5-14B at tp 2 on RTX 4090, vLLM 0.7"),
    ],
)
def test_weights_are_what_other_versions_logged_on_other_cards(
    config: dict[str, Any], tp: int, gib: float
) -> None:
    """Nothing about weights was fitted, so it holds elsewhere too: within half a per mille."""
    model = model_of(config)
    found = stage_weights(model.architecture, None, number_bytes=2, tp=tp, pp=1)[0] / 2**30

    assert found == pytest.approx(gib, rel=0.0005)


@pytest.mark.parametrize("tp", [3, 5, 64])
def test_a_degree_that_does_not_divide_the_heads_is_refused_with_those_that_do(tp: int) -> None:
    with pytest.raises(RequestError, match="accepted: 1, 2, 4, 8, 16, 32"):
        check_parallelism(measured("meta-llama/Llama-3.1-8B-Instruct").architecture, tp, 1)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(RequestError, match="is more than there are layers; accepted: 1 to 32"):
        check_parallelism(measured("meta-llama/Llama-3.1-8B-Instruct").architecture, 1, 33)


def test_key_value_heads_are_never_cut() -> None:
    """Qwen2.5-7B has 4 of them: at tp 28 each GPU holds one whole, seven times as many as one copy needs."""
    built = measured("Qwen/Qwen2.5-7B-Instruct").architecture
    parts = [
        stage_weights(built, None, number_bytes=2, tp=tp, pp=1, only_stored=True)[0] for tp in (1, 4, 28)
    ]

    assert parts[0] < 4 * parts[1] < 28 * parts[2]


@given(st.sampled_from(sorted(read_measured_models())), st.sampled_from([1, 2, 4]), st.integers(1, 4))
def test_all_gpus_together_hold_at_least_the_model(name: str, tp: int, pp: int) -> None:
    model = measured(name)
    built, scheme = model.architecture, model.scheme
    whole = stage_weights(built, scheme, number_bytes=2, tp=1, pp=1, only_stored=True)[0]
    dealt = stage_weights(built, scheme, number_bytes=2, tp=tp, pp=pp, only_stored=True)

    assert tp * sum(dealt) >= whole * 0.999
    assert max(dealt) <= whole
