"""How many GPUs a service needs, from its parameters, in every spelling that engines and tuners use."""

from collections.abc import Mapping

from vramline.errors import RequestError

__all__ = ["names_parallelism", "required_gpus"]

_TENSOR = ("tpsize", "tp", "tensorparallelsize", "tensorparallelism")
_PIPELINE = ("ppsize", "pp", "pipelineparallelsize")
_MOST = 1024


def required_gpus(parameters: Mapping[str, object]) -> int:
    """Return tensor × pipeline parallelism; 1 where neither is given.

    >>> required_gpus({"tp-size": "4"}), required_gpus({"--tensor-parallel-size": 2, "pp_size": 2})
    (4, 4)
    """
    return _degree(parameters, _TENSOR) * _degree(parameters, _PIPELINE)


def names_parallelism(parameters: Mapping[str, object]) -> bool:
    """Whether any spelling of a degree is among the parameters."""
    named = {_plain(key) for key, value in parameters.items() if value is not None}
    return not named.isdisjoint((*_TENSOR, *_PIPELINE))


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "")


def _degree(parameters: Mapping[str, object], names: tuple[str, ...]) -> int:
    found: dict[str, int] = {}
    for key, value in parameters.items():
        if _plain(key) in names and value is not None:
            found[key] = _read(key, value)
    if len(set(found.values())) > 1:
        raise RequestError(
            subject="parameters",
            field=", ".join(found),
            value=list(found.values()),
            problem="say different things",
            accepted="one of them",
        )
    return next(iter(found.values()), 1)


def _read(key: str, value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST:
        raise RequestError(
            subject="parameters",
            field=key,
            value=value,
            problem="is not a number of GPUs",
            accepted=f"1 to {_MOST}, as a number or as text",
        )
    return int(text)
