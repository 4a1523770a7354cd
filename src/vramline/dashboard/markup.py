"""How values are written into pages: amounts, names, times, ids, and sentences without foreign names."""

import datetime as dt
import hashlib
import math
from functools import cached_property, partial
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

__all__ = ["Templates", "asset_tag", "id_of"]


def id_of(kind: str, name: str) -> str:
    """Return an id for an element; whatever is in the name, the id is plain.

    >>> id_of("c", "n1/gpu-0")
    'c-118437cae049'
    """
    return f"{kind}-{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"


def asset_tag() -> str:
    """Return a word that changes whenever an asset does, so that browsers may keep them."""
    sum_of_all = hashlib.blake2b(digest_size=6)
    for each in sorted(files("vramline.dashboard").joinpath("assets").iterdir(), key=lambda each: each.name):
        sum_of_all.update(each.read_bytes())
    return sum_of_all.hexdigest()


class Templates:
    """The pages' templates. What is not marked as markup is escaped, what is missing is an error."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("vramline.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            mib=_mib, gib=_gib, share=_share, clock=_clock, path=partial(quote, safe="")
        )
        self._environment.globals.update(id_of=id_of, tag=asset_tag())

    @cached_property
    def _parts(self) -> Any:  # noqa: ANN401 — a template's macros, by name
        """Compiled when the first page is wanted: a scheduler that starts has other things to do."""
        return self._environment.get_template("parts.html").module

    def page(self, name: str, **values: object) -> str:
        """Write a whole page."""
        return self._environment.get_template(name).render(**values)

    def part(self, name: str, *values: object) -> Markup:
        """Write one piece of a page: a macro of `parts.html`."""
        drawn: Markup = getattr(self._parts, name)(*values)
        return drawn


def _mib(amount: int | None) -> str:
    return "?" if amount is None else f"{amount:,}".replace("-", "−")


def _gib(amount: int) -> str:
    """Write MiB as GiB, for sums that nobody reads to the last digit.

    >>> _gib(1_536), _gib(512_000), _gib(3_000_000)
    ('1.5 GiB', '500 GiB', '2.9 TiB')
    """
    gib = amount / 1024
    if abs(gib) >= 1024:
        return f"{gib / 1024:,.1f} TiB"
    return f"{gib:,.0f} GiB" if abs(gib) >= 100 else f"{gib:,.1f} GiB"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _clock(at: float, style: str = "ago") -> Markup:
    """Write a moment; a script beside the page says how long ago that is, by the cluster's own clock."""
    if not math.isfinite(at):
        return Markup("<time>before anyone looked</time>")
    told = dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%S UTC")
    return Markup('<time class="{}" data-at="{}">{}</time>').format(style, f"{at:.3f}", told)
