"""GPU-feature-discovery labels: how many cards of one sort, how large, how often advertised."""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from vramline.errors import RequestError
from vramline.units import MAX_MIB
from vramline.wire import keys

__all__ = ["MAX_CARDS", "GfdLabels", "read_gfd"]

MAX_CARDS = 1024
"""Most cards of one node that are believed."""

_DIGITS = re.compile(r"[0-9]{1,10}", re.ASCII)
_SHARED = re.compile(r"[-_ ]SHARED$", re.IGNORECASE)
_MIG = re.compile(r"[-_ ]MIG[-_ ]", re.IGNORECASE)
_MAX_REPLICAS = 65_535
_READ = (keys.GFD_PRODUCT, keys.GFD_SHARING_STRATEGY, keys.GFD_COUNT, keys.GFD_MEMORY, keys.GFD_REPLICAS)


class GfdLabels(msgspec.Struct, frozen=True, kw_only=True):
    """What the labels say; None: they do not say it."""

    count: int | None = None
    memory: int | None = None
    """MiB of one card (of one instance, where `mig`)."""
    replicas: int | None = None
    model: str = ""
    shared: bool = False
    """Something besides a replica count says that devices are views of cards."""
    mig: bool = False
    """Every GPU of the node is partitioned: the labels describe instances, not cards."""
    mixed: bool = False
    """There are MIG instances beside whole cards."""

    @property
    def may_be_replicated(self) -> bool:
        """Whether the number of devices says nothing about the number of cards."""
        return self.shared or (self.replicas or 1) > 1


def read_gfd(labels: Mapping[str, str], subject: str) -> GfdLabels:
    """Read the labels that are there. Nodes of one sort say the same, which is read once."""
    told = tuple(map(labels.get, _READ))
    mixed = labels.get(keys.GFD_MIG_STRATEGY) == "mixed" and any(map(_counts_instances, labels.items()))
    try:
        return _read_known(told, mixed=mixed)
    except RequestError:
        return _read_labels(told, subject, mixed=mixed)  # to say whose they are


@lru_cache(maxsize=1024)
def _read_known(told: tuple[str | None, ...], *, mixed: bool) -> GfdLabels:
    return _read_labels(told, "", mixed=mixed)


def _read_labels(told: tuple[str | None, ...], subject: str, *, mixed: bool) -> GfdLabels:
    product, strategy, count, memory, replicas = told
    model = _SHARED.sub("", product or "")
    return GfdLabels(
        count=_read(count, keys.GFD_COUNT, MAX_CARDS, subject),
        memory=_read(memory, keys.GFD_MEMORY, MAX_MIB, subject) or None,
        replicas=_read(replicas, keys.GFD_REPLICAS, _MAX_REPLICAS, subject) or None,
        model=model,
        shared=model != (product or "") or strategy not in (None, "none", ""),
        mig=_MIG.search(product or "") is not None,
        mixed=mixed,
    )


def _counts_instances(label: tuple[str, str]) -> bool:
    key, value = label
    return key.startswith(keys.MIG_RESOURCE_PREFIX) and key.endswith(".count") and value != "0"


def _read(text: str | None, key: str, high: int, subject: str) -> int | None:
    if text is None:
        return None
    if not _DIGITS.fullmatch(text) or int(text) > high:
        raise RequestError(
            subject=subject,
            field=f"label {key}",
            value=text,
            problem="is not a believable number",
            accepted=f"a whole number from 0 to {high}",
        )
    return int(text)
