"""Reading a model's `config.json` field by field: what was read, what was assumed, what nobody looked at.

A field that bears on memory and that no reader looked at is a reason to refuse: the model has a part that
the arithmetic does not know.
"""

from collections.abc import Mapping

from vramline.errors import RequestError

__all__ = ["Fields"]

_LARGEST = 2**40
"""No size in a model is larger; a larger number is a mistake, and must not be multiplied."""

_LARGEST_COUNTS = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "block_count"), 10_000),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "attention.head_count"), 65_536),
}
"""Things that are gone through one by one: a number beyond reason must not keep anybody waiting."""

_MEMORY_BEARING = frozenset(
    {
        "attention_chunk_size",
        "attn_layer_indices",
        "audio_config",
        "block_types",
        "conv_L_cache",
        "cross_attention_layers",
        "full_attention_interval",
        "hybrid_override_pattern",
        "index_head_dim",
        "index_topk",
        "kv_lora_rank",
        "layer_types",
        "layers_block_type",
        "linear_num_value_heads",
        "mamba_d_state",
        "mamba_num_heads",
        "moe_num_experts",
        "n_routed_experts",
        "n_shared_experts",
        "num_experts",
        "num_kv_shared_layers",
        "num_local_experts",
        "q_lora_rank",
        "recurrent_block_type",
        "shared_expert_intermediate_size",
        "sliding_window",
        "ssm_cfg",
        "state_size",
        "time_step_rank",
        "use_mla",
        "vision_config",
    }
)
"""Fields that change how many weights or how much cache a model has."""

_MEMORY_BEARING_PREFIXES = ("linear_num_", "mamba_", "moe_intermediate", "moe_num_", "num_shared", "ssm_")
""" … and beginnings of such names."""


class Fields:
    """The fields of one object of a config, under the name of the file and the path to the object."""

    def __init__(
        self,
        data: Mapping[str, object],
        *,
        subject: str,
        path: str = "",
        defaults: Mapping[str, int] | None = None,
    ) -> None:
        self.subject = subject
        self.path = path
        self.assumed: dict[str, int] = {}
        """Defaults of the model's class that stood in for fields that are not there."""
        self._data = data
        self._defaults = defaults or {}
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether a field is there and is not null."""
        self._read.add(name)
        return self._data.get(name) is not None

    def maybe_whole(self, *names: str) -> int | None:
        """Return the first of these fields that is there, as a positive whole number."""
        self._read.update(names)
        for name in names:
            value = self._data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise self.wrong(name, value, "is not a positive whole number", "a number such as 32")
            largest = _LARGEST_COUNTS.get(name, _LARGEST)
            if value > largest:
                raise self.wrong(name, value, "is beyond reason", f"at most {largest:,}")
            return value
        return None

    def whole(self, *names: str, default: int | None = None) -> int:
        """Return the first of these fields that is there, else a default; without one, refuse."""
        value = self.maybe_whole(*names)
        if value is not None:
            return value
        if default is not None:
            return default
        for name in names:
            if name in self._defaults:
                self.assumed[self.path + name] = self._defaults[name]
                return self._defaults[name]
        raise self.wrong(names[0], None, "is missing", f"a number in {' or '.join(names)}")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a field that is true or false."""
        self._read.add(name)
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "is neither true nor false", "true or false")
        return value

    def number(self, name: str, *, default: float) -> float:
        """Return a field that is a number."""
        self._read.add(name)
        value = self._data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= _LARGEST:
            raise self.wrong(name, value, "is not a number that makes sense here", "a number such as 4.0")
        return float(value)

    def text(self, *names: str) -> str:
        """Return the first of these fields that is there, as text; empty where none is."""
        self._read.update(names)
        for name in names:
            value = self._data.get(name)
            if isinstance(value, str):
                return value
            if value is not None:
                raise self.wrong(name, value, "is not text", "a word")
        return ""

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return a list of words."""
        values = self._list(name)
        if values is None:
            return None
        words = tuple(value for value in values if isinstance(value, str))
        if len(words) != len(values):
            raise self.wrong(name, values, "is not a list of words", 'a list such as ["full_attention"]')
        return words

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of whole numbers."""
        values = self._list(name)
        if values is None:
            return None
        numbers = tuple(value for value in values if isinstance(value, int) and not isinstance(value, bool))
        if len(numbers) != len(values):
            raise self.wrong(name, values, "is not a list of whole numbers", "a list such as [3, 7]")
        return numbers

    def child(self, *names: str, defaults: Mapping[str, int] | None = None) -> "Fields | None":
        """Return the first of these fields that is there, as an object of its own."""
        self._read.update(names)
        for name in names:
            value = self._data.get(name)
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise self.wrong(name, value, "is not an object", "an object of fields")
            return Fields(value, subject=self.subject, path=f"{self.path}{name}.", defaults=defaults)
        return None

    def with_defaults(self, defaults: Mapping[str, int]) -> "Fields":
        """Return the same fields with defaults of the model's class."""
        self._defaults = defaults
        return self

    def has_default(self, name: str) -> bool:
        """Whether the model's class has a default for a field."""
        return name in self._defaults

    def default_of(self, name: str) -> int | None:
        """Return the class's default of a field that need not be there."""
        return self._defaults.get(name)

    def skip(self, *names: str) -> None:
        """Say of fields that they were considered and change nothing."""
        self._read.update(names)

    def refuse_unread(self, model_type: str) -> None:
        """Refuse where a field that bears on memory is set and nobody looked at it."""
        for name in sorted(self._data.keys() - self._read):
            bears = name in _MEMORY_BEARING or name.startswith(_MEMORY_BEARING_PREFIXES)
            value = self._data[name]
            if bears and value is not None and value is not False and value not in ({}, [], 0):
                raise self.wrong(
                    name,
                    value,
                    f"changes how much memory a model needs, and is not understood for {model_type}",
                    f"a {model_type} without it",
                )

    def wrong(self, name: str, value: object, problem: str, accepted: str) -> RequestError:
        """Return the error that names a field and its value."""
        return RequestError(
            subject=self.subject, field=self.path + name, value=value, problem=problem, accepted=accepted
        )

    def names(self) -> list[str]:
        """Return the names of all fields."""
        return list(self._data)

    def length(self, name: str) -> int:
        """Return how many entries a list or an object has; 0 where it is not there."""
        self._read.add(name)
        value = self._data.get(name)
        return len(value) if isinstance(value, list | Mapping) else 0

    def _list(self, name: str) -> list[object] | None:
        self._read.add(name)
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, value, "is not a list", "a list")
        return value
