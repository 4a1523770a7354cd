"""How quantised weights are stored."""

from typing import Any

import pytest

from inference.models import LLAMA_8B, model_of
from vramline.errors import RequestError
from vramline.inference.architecture import Tensor
from vramline.inference.estimate import Plan, plan_stages
from vramline.inference.quantization import METHODS, Scheme, quantise_on_load, read_quantization

GIB = 2**30


def compressed(**weights: object) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


@pytest.mark.parametrize(
    ("config", "gib"),
    [
        pytest.param({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8.49, id="fp8 in blocks"),
        pytest.param({"quant_method": "fp8"}, 8.49, id="fp8"),
        pytest.param(compressed(num_bits=4, strategy="group", group_size=128), 5.38, id="w4a16"),
        pytest.param(compressed(num_bits=8, strategy="channel"), 8.49, id="w8a8"),
        pytest.param({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.40, id="awq"),
        pytest.param({"quant_method": "gptq", "bits": 4, "group_size": 128}, 5.40, id="gptq"),
        pytest.param({"quant_method": "bitsandbytes", "load_in_4bit": True}, 5.70, id="bitsandbytes 4"),
        pytest.param({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 5.70, id="nvfp4"),
    ],
)
def test_an_8b_model_takes(config: dict[str, object], gib: float) -> None:
    model = model_of({**LLAMA_8B, "quantization_config": config})

    assert plan_stages(model, Plan(context=1))[0].weights.expected / GIB == pytest.approx(gib, rel=0.01)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        pytest.param({"quant_method": "aqlm"}, "quantization_config.quant_method", id="unknown method"),
        pytest.param({}, "quantization_config.quant_method", id="no method"),
        pytest.param(
            {"quant_method": "gptq", "bits": 4, "dynamic": {"-:x": {}}},
            "quantization_config.dynamic",
            id="bits by module",
        ),
        pytest.param(
            {"quant_method": "modelopt", "quant_algo": "W4A8_MAGIC"},
            "quantization_config.quant_algo",
            id="unknown algorithm",
        ),
        pytest.param(
            {"quant_method": "compressed-tensors", "config_groups": {"a": {}, "b": {}}},
            "quantization_config.config_groups",
            id="two groups",
        ),
        pytest.param(
            compressed(num_bits=4, strategy="spiral"),
            "quantization_config.config_groups.group_0.weights.strategy",
            id="unknown strategy",
        ),
        pytest.param(
            {"quant_method": "fp8", "weight_block_size": [128]},
            "quantization_config.weight_block_size",
            id="half a block",
        ),
        pytest.param(
            {**compressed(num_bits=8), "ignore": ["re:("]}, "quantization_config.ignore", id="broken pattern"
        ),
    ],
)
def test_what_is_not_understood_is_refused(config: dict[str, object], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_quantization({"quantization_config": config}, "config.json")

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        pytest.param("model.layers.0.mlp.down_proj", False, id="its own name"),
        pytest.param("model.layers.1.mlp.down_proj", True, id="another layer"),
        pytest.param("model.layers.*.mlp", False, id="a star"),
        pytest.param("re:.*down_proj$", False, id="an expression"),
        pytest.param("down_proj", False, id="the last part"),
        pytest.param("proj", True, id="a part of a word"),
        pytest.param("language_model.model.layers.0", True, id="no such prefix"),
        pytest.param("model.language_model.layers.0", False, id="the prefix of a model that sees"),
    ],
)
def test_a_module_is_left_out_by(pattern: str, covered: bool) -> None:
    scheme = Scheme(method="fp8", bits=8, ignored=(pattern,))

    assert scheme.covers(Tensor("mlp.down_proj", 8, 8, linear=True), 0) is covered


def test_only_linear_layers_are_quantised() -> None:
    assert not Scheme(method="fp8", bits=8).covers(Tensor("lm_head", 8, 8))


@pytest.mark.parametrize("method", METHODS)
def test_a_method_for_loading_has_its_form(method: str) -> None:
    assert quantise_on_load(method).method == method


def test_an_unknown_method_for_loading_is_refused() -> None:
    with pytest.raises(RequestError, match="--quantization = 'q4': is not understood; accepted: fp8"):
        quantise_on_load("q4")
