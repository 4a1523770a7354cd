"""Configs of real models: each is estimated, or refused by a field's name; none is wrong in silence."""

import re
from pathlib import Path

import pytest

from inference.models import data_folder
from vramline.errors import RequestError
from vramline.inference.architecture import count_parameters
from vramline.inference.caches import Engine
from vramline.inference.estimate import Plan, estimate
from vramline.inference.source import load_model

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
"""Encoders, parts that are not described, and sizes that are missing; by the field that is named."""
NAMED_OTHERWISE = {"dbrx_132b", "gemma_2_2b", "gemma_2_2b_it", "llama4_scout_17b_16e"}
"""Has other layers than the model of that name; named without the embedding; by its active parameters."""


def configs() -> list[Path]:
    return sorted((data_folder() / "configs").glob("*.json"))


def test_every_config_is_estimated_for_both_engines_or_refused_by_a_field() -> None:
    refused = {}
    for path in configs():
        try:
            for engine in Engine:
                found = estimate(load_model(str(path)), Plan(engine=engine, context=4096))
                assert 0 < found.per_gpu.low <= found.per_gpu.expected <= found.per_gpu.high
        except RequestError as error:
            refused[path.stem] = error.field

    assert refused == REFUSED


def test_names_that_tell_a_size_tell_the_right_one() -> None:
    """Names round; what is wrong by a layer's kind does not pass."""
    odd = {}
    for path in configs():
        told = re.search(r"(?:^|_|-)(\d+(?:\.\d+)?)b(?:_|$)", path.stem)
        if told is None or path.stem in REFUSED.keys() | NAMED_OTHERWISE:
            continue
        ratio = count_parameters(load_model(str(path)).architecture) / float(told[1]) / 1e9
        if not 0.9 < ratio < 1.25:
            odd[path.stem] = ratio

    assert odd == {}


@pytest.mark.parametrize(("tp", "pp"), [pytest.param(2, 1, id="tp 2"), pytest.param(1, 2, id="pp 2")])
def test_dealing_out_never_makes_a_gpu_hold_more(tp: int, pp: int) -> None:
    for path in configs():
        if path.stem in REFUSED:
            continue
        model = load_model(str(path))
        try:
            dealt = estimate(model, Plan(tp=tp, pp=pp, context=4096))
        except RequestError:
            continue  # this degree cuts a head
        alone = estimate(model, Plan(context=4096))
        weights = [found.lines[0].expected_mib for found in (dealt, alone)]
        assert weights[0] < weights[1] + 2, path.stem
