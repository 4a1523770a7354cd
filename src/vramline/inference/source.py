"""From what a user names (a config, a folder, a GGUF file, an OME manifest, a cached model) to a model."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vramline.errors import RequestError
from vramline.inference.estimate import Model
from vramline.inference.gguf import architecture_of, read_gguf
from vramline.inference.hf_config import read_config
from vramline.inference.quantization import read_quantization
from vramline.inference.safetensors import FileWeights, read_safetensors

__all__ = ["load_model", "model_of_config"]

_ACCEPTED = (
    "a config.json, a model's folder, a .gguf file, an OME ClusterBaseModel as YAML,"
    " or the name of a model in the Hugging Face cache of this machine"
)
_LARGEST_CONFIG = 16 * 2**20


def load_model(where: str) -> Model:
    """Read the model that `where` names; raises `RequestError` where it is not there or not understood."""
    path = Path(where)
    try:
        if path.is_dir():
            return _from_folder(path, name=path.resolve().name)
        if path.is_file():
            return _from_file(path)
    except OSError as error:
        raise RequestError(
            subject=where, problem=f"cannot be read: {error.strerror}", accepted=_ACCEPTED
        ) from None
    cached = _find_cached(where)
    if cached is None:
        raise RequestError(subject=where, problem="is not there", accepted=_ACCEPTED)
    return _from_folder(cached, name=where)


def _from_file(path: Path) -> Model:
    suffix = path.suffix.lower()
    if suffix == ".gguf":
        header = read_gguf(path)
        built = architecture_of(header, str(path))
        return Model(
            name=path.stem,
            architecture=built,
            file_bytes=header.tensor_bytes,
            file_numbers=0,
            parameters=header.parameters,
            source=path.name,
        )
    if suffix in {".yaml", ".yml"}:
        return _from_manifest(path)
    if suffix == ".safetensors":
        raise RequestError(
            subject=str(path),
            problem="is weights alone",
            accepted="the folder it is in, with its config.json",
        )
    data = _read_json(path)
    if "kind" in data and "apiVersion" in data:
        return _from_base_model(data, path)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return model_of_config(data, subject=str(path), name=name)


def _from_folder(folder: Path, *, name: str) -> Model:
    config = folder / "config.json"
    if not config.is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        if len(ggufs) == 1:
            return _from_file(ggufs[0])
        raise RequestError(
            subject=str(folder), problem="has no config.json in it", accepted="a model's folder, or one .gguf"
        )
    files = read_safetensors(folder)
    return model_of_config(_read_json(config), subject=str(config), name=name, files=files)


def model_of_config(
    data: Mapping[str, object], *, subject: str, name: str = "model", files: FileWeights | None = None
) -> Model:
    """Return the model of a parsed config.json, and of its files where they were seen."""
    return Model(
        name=name,
        architecture=read_config(data, subject),
        scheme=read_quantization(data, subject),
        file_bytes=None if files is None else files.stored_bytes,
        file_numbers=None if files is None else files.numbers,
        source="config.json" if files is None else "safetensors files",
    )


def _from_manifest(path: Path) -> Model:
    import yaml  # noqa: PLC0415 — only this source needs it

    if path.stat().st_size > _LARGEST_CONFIG:
        raise RequestError(subject=str(path), problem="is too large for a manifest", accepted=_ACCEPTED)
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        line = " ".join(str(error).split())
        raise RequestError(subject=str(path), problem=f"is not YAML: {line}", accepted=_ACCEPTED) from None
    models = [
        document
        for document in documents
        if isinstance(document, dict) and document.get("kind") in {"ClusterBaseModel", "BaseModel"}
    ]
    if len(models) != 1:
        raise RequestError(
            subject=str(path),
            field="kind",
            value=[document.get("kind") for document in documents if isinstance(document, dict)],
            problem=f"holds {len(models)} models",
            accepted="one ClusterBaseModel or BaseModel",
        )
    return _from_base_model(models[0], path)


def _from_base_model(data: Mapping[str, object], path: Path) -> Model:
    """Read an OME model: from the configuration it carries, or from the folder that it is stored in."""
    metadata, spec = data.get("metadata"), data.get("spec")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    subject = f"{data.get('kind')} {name} ({path})"
    if not isinstance(spec, Mapping):
        raise RequestError(subject=subject, field="spec", problem="is missing", accepted="an OME model")
    config = spec.get("modelConfiguration")
    if isinstance(config, Mapping) and ("model_type" in config or "hidden_size" in config):
        return model_of_config(config, subject=f"{subject}: spec.modelConfiguration", name=name)
    storage = spec.get("storage")
    stored = storage.get("path") if isinstance(storage, Mapping) else None
    if isinstance(stored, str) and (Path(stored) / "config.json").is_file():
        return _from_folder(Path(stored), name=name)
    uri = storage.get("storageUri") if isinstance(storage, Mapping) else None
    if isinstance(uri, str) and uri.startswith("hf://"):
        cached = _find_cached(uri.removeprefix("hf://").partition("@")[0])
        if cached is not None:
            return _from_folder(cached, name=name)
    raise RequestError(
        subject=subject,
        field="spec.storage",
        value=stored or uri,
        problem="the model's config.json is neither in the manifest nor on this machine",
        accepted="spec.modelConfiguration, a storage.path that is here, or the config.json itself",
    )


def _find_cached(name: str) -> Path | None:
    """Return the folder of a model of this name in the machine's Hugging Face cache."""
    if name.count("/") != 1 or ".." in name:
        return None
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    snapshots = Path(home) / "hub" / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [folder for folder in sorted(snapshots.glob("*")) if (folder / "config.json").is_file()]
    return found[-1] if found else None


def _read_json(path: Path) -> dict[str, object]:
    if path.stat().st_size > _LARGEST_CONFIG:
        raise RequestError(subject=str(path), problem="is too large for a config", accepted=_ACCEPTED)
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(subject=str(path), problem=f"is not JSON: {error}", accepted=_ACCEPTED) from None
    if not isinstance(data, dict):
        raise RequestError(subject=str(path), problem="is not an object", accepted=_ACCEPTED)
    return data
