"""What a user may name."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference.models import LLAMA_8B
from vramline.errors import RequestError
from vramline.inference.estimate import Plan, estimate
from vramline.inference.source import load_model

TINY: dict[str, Any] = {
    **LLAMA_8B,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
PARAMETERS = 2 * 256 * 64 + 64 + 2 * (2 * 64 + 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128)


def write_safetensors(file: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    header = {
        name: {"dtype": kind, "shape": shape, "data_offsets": [0, 0]}
        for name, (kind, shape) in tensors.items()
    }
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw)


def write_config(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


def test_a_config(tmp_path: Path) -> None:
    found = estimate(load_model(str(write_config(tmp_path, TINY))), Plan())

    assert (found.model, found.parameters, found.source) == (tmp_path.name, PARAMETERS, "config.json")


def test_a_folder_is_weighed_by_its_files(tmp_path: Path) -> None:
    """Numbers are converted to the engine's type, integers stay as they are."""
    write_config(tmp_path, TINY)
    write_safetensors(tmp_path / "a.safetensors", {"w": ("F32", [1000, 1024])})
    write_safetensors(tmp_path / "b.safetensors", {"q": ("I32", [1024, 512]), "s": ("F8_E4M3", [1024])})

    model = load_model(str(tmp_path))

    assert (model.file_numbers, model.file_bytes) == (1_024_000, 1024 * 512 * 4 + 1024)
    weights = estimate(model, Plan()).lines[0]
    assert weights.formula.startswith(f"{1_024_000 * 2 + 1024 * 2049:,} B in safetensors files")
    assert weights.expected_mib == 4


@pytest.mark.parametrize("tp", [1, 4])
def test_files_that_hold_what_the_config_says_weigh_the_same(tmp_path: Path, tp: int) -> None:
    """Rotary tables are in no file, and whole on each GPU all the same."""
    alone = estimate(load_model(str(write_config(tmp_path, LLAMA_8B))), Plan(tp=tp)).lines[0]
    write_safetensors(tmp_path / "a.safetensors", {"w": ("BF16", [8_030_261_248])})

    weighed = estimate(load_model(str(tmp_path)), Plan(tp=tp)).lines[0]

    assert weighed.expected_mib == alone.expected_mib
    assert weighed.formula.endswith(" + 33,554,432 B of tables and padding")


def test_shards_are_those_of_the_index_and_all_must_be_there(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    write_safetensors(tmp_path / "a.safetensors", {"w": ("BF16", [8])})
    index = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    with pytest.raises(RequestError, match=r"names 1 of 2 files that are not there"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 64, id="not a header"),
        pytest.param(struct.pack("<Q", 4) + b"{{{{", id="no JSON"),
        pytest.param(struct.pack("<Q", 10) + b'{"a":1}   ', id="no tensor"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    write_config(tmp_path, TINY)
    (tmp_path / "a.safetensors").write_bytes(content)

    with pytest.raises(RequestError, match=r"a\.safetensors: has no safetensors header"):
        load_model(str(tmp_path))


def test_files_tell_what_a_config_does_not(tmp_path: Path) -> None:
    """The vision tower of this model is only named in its config."""
    write_config(tmp_path, {**TINY, "model_type": "llava", "mm_vision_tower": "openai/clip"})
    with pytest.raises(RequestError, match="mm_vision_tower: does not give the shape"):
        estimate(load_model(str(tmp_path)), Plan())

    write_safetensors(tmp_path / "a.safetensors", {"w": ("BF16", [1024, 1024])})

    assert estimate(load_model(str(tmp_path)), Plan(tp=2)).lines[0].expected_mib >= 2


def manifest(tmp_path: Path, spec: dict[str, Any]) -> str:
    file = tmp_path / "model.yaml"
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterBaseModel",
        "metadata": {"name": "tiny"},
        "spec": spec,
    }
    file.write_text(yaml.safe_dump(body), encoding="utf-8")
    return str(file)


def test_an_ome_model_with_its_configuration(tmp_path: Path) -> None:
    model = load_model(manifest(tmp_path, {"modelConfiguration": TINY}))

    assert (model.name, estimate(model, Plan()).parameters) == ("tiny", PARAMETERS)


def test_an_ome_model_whose_storage_is_here(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)

    assert load_model(manifest(tmp_path, {"storage": {"path": str(tmp_path)}})).name == "tiny"


def test_an_ome_model_that_is_elsewhere_is_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        load_model(manifest(tmp_path, {"storage": {"storageUri": "hf://meta-llama/Llama-3.1-8B"}}))

    assert (caught.value.field, caught.value.value) == ("spec.storage", "hf://meta-llama/Llama-3.1-8B")


def test_a_name_is_looked_up_in_the_cache_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    write_config(folder, TINY)

    assert load_model("org/tiny").name == "org/tiny"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        pytest.param("c.json", "{", "is not JSON", id="half a file"),
        pytest.param("c.json", "[1]", "is not an object", id="a list"),
        pytest.param("c.yaml", "a: [", "is not YAML", id="half a manifest"),
        pytest.param("c.yaml", "kind: Pod", "holds 0 models", id="another kind"),
        pytest.param("c.safetensors", "", "is weights alone", id="weights"),
        pytest.param("c.gguf", "GGUF", "ends inside its header", id="half a GGUF"),
        pytest.param("c.gguf", "GGML0000", "is no GGUF file", id="another format"),
    ],
)
def test_a_file_that_is_no_model(tmp_path: Path, name: str, content: str, problem: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")

    with pytest.raises(RequestError, match=problem):
        load_model(str(tmp_path / name))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(RequestError, match=r"nowhere/config\.json: is not there; accepted: a config\.json"):
        load_model("nowhere/config.json")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has no config\.json in it"):
        load_model(str(tmp_path))


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(fields: dict[str, int | str], tensors: dict[str, tuple[list[int], int]], *, words: int = 0) -> bytes:
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields) + bool(words))
    for name, value in fields.items():
        raw += text(name)
        raw += struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value)
    if words:
        raw += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, words) + text("w") * words
    for name, (shape, kind) in tensors.items():
        raw += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        raw += struct.pack("<IQ", kind, 0)
    return raw


SIZES: dict[str, int | str] = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.context_length": 8192,
}


def test_a_gguf_file_is_weighed_by_its_tensors(tmp_path: Path) -> None:
    """Q4_K packs 256 numbers into 144 bytes, Q6_K into 210."""
    file = tmp_path / "llama-q4.gguf"
    file.write_bytes(gguf(SIZES, {"a": ([4096, 4096], 12), "b": ([256], 14)}, words=100))

    found = estimate(load_model(str(file)), Plan(concurrency=2))

    assert found.lines[0].formula == f"{4096 * 4096 // 256 * 144 + 210:,} B in llama-q4.gguf"
    assert found.parameters == 4096 * 4096 + 256
    assert (found.kv_bytes_per_token, found.context, found.lines[1].expected_mib) == (131_072, 8192, 2048)


@pytest.mark.parametrize(
    ("fields", "tensors", "field"),
    [
        pytest.param({"general.architecture": "mamba"}, {}, "general.architecture", id="another family"),
        pytest.param(
            {"llama.attention.sliding_window": 512}, {}, "llama.attention.sliding_window", id="window"
        ),
        pytest.param({"split.count": 3}, {}, "split.count", id="one of three"),
        pytest.param({}, {"w": ([8], 99)}, "tensor w", id="unknown type"),
    ],
)
def test_a_gguf_file_that_is_not_understood(
    tmp_path: Path, fields: dict[str, int | str], tensors: dict[str, tuple[list[int], int]], field: str
) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf({**SIZES, **fields}, tensors, words=10))

    with pytest.raises(RequestError) as caught:
        load_model(str(file))

    assert caught.value.field == field
