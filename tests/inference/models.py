"""Small configs, written by hand, and where the folder of real ones is."""

import os
from pathlib import Path
from typing import Any

import pytest

from vramline.bench.estimate import read_measured_models
from vramline.inference.estimate import Model
from vramline.inference.hf_config import read_config
from vramline.inference.quantization import read_quantization

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}

NEXT_80B: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "partial_rotary_factor": 0.25,
    "torch_dtype": "bfloat16",
}


def model_of(config: dict[str, Any], name: str = "m") -> Model:
    return Model(name=name, architecture=read_config(config, name), scheme=read_quantization(config, name))


def measured(name: str) -> Model:
    """One of the measured models."""
    return model_of(read_measured_models()[name], name)


def data_folder() -> Path:
    """The folder of real configs and measured runs; skips the test where it is not there."""
    folder = os.environ.get("VRAMLINE_DATA")
    if not folder:
        pytest.skip("VRAMLINE_DATA is not set: the folder of real configs and measured runs")
    return Path(folder) / "models"
