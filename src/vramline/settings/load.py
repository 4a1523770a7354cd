"""From file, environment and flags to effective settings, with every mistake and every origin."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vramline.errors import MistakesError, RequestError
from vramline.model.ask import RealtimeMode
from vramline.model.rules import mode_when_enabled
from vramline.settings.schema import ENABLE, MODE, SETTINGS, Origin, Setting, Settings, Source

__all__ = ["load"]

_PREFIX = "VRAMLINE_"
_NO_SETTINGS = frozenset({"VRAMLINE_SERVER", "VRAMLINE_DATA"})
"""Variables that other parts read: the address of client commands, the folder of benchmark data."""

_SERVICE_LINK = re.compile(
    r"VRAMLINE(?:_[A-Z0-9_]+)?"
    r"_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)",
    re.ASCII,
)
"""What kubelet puts into every pod for a Service whose name starts with `vramline`; no setting is meant."""

_BY_KEY = {setting.name: setting for setting in SETTINGS}
_BY_OWN_VARIABLE = {setting.variable: setting for setting in SETTINGS}
_BY_HAMI_VARIABLE = {"HAMI_REALTIME_CHECK_MODE": MODE, "HAMI_ENABLE_REALTIME_CHECK": ENABLE}


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """One value somebody gave, and where."""

    source: Source
    where: str
    raw: object
    value: object


_Level = dict[str, _Said]
"""What one source said, by the setting's name."""


def load(
    file: object, environ: Mapping[str, str], flags: Mapping[str, object], *, file_name: str = "settings file"
) -> Settings:
    """Return the effective settings: flag over environment over file over default.

    `file` is the parsed content of the settings file (None: there is none or it is empty), `flags` holds
    values by the setting's name (None: not given). Among variables `VRAMLINE_*` wins over the seed names
    `HAMI_*`; an empty variable counts as not set. Unknown keys and unknown `VRAMLINE_*` variables are
    mistakes. Raises `MistakesError` with all of them at once, each with its source, path and accepted forms.
    """
    mistakes: list[RequestError] = []
    levels = (
        _read_file(file, file_name, mistakes),
        _read_variables(environ, _BY_HAMI_VARIABLE, mistakes),
        _read_variables(environ, _BY_OWN_VARIABLE, mistakes),
        _read_flags(flags, mistakes),
    )
    mistakes.extend(_unknown_variables(environ))
    settings = _settle(levels)
    if not mistakes:
        mistakes.extend(_contradictions(settings))
    if mistakes:
        raise MistakesError(subject="settings", mistakes=tuple(mistakes))
    return settings


def _read_file(file: object, file_name: str, mistakes: list[RequestError]) -> _Level:
    if file is None:
        return {}
    if not isinstance(file, Mapping):
        mistakes.append(
            RequestError(
                subject=file_name,
                problem=f"is a {type(file).__name__}, not a mapping",
                accepted="lines of `setting: value`",
            )
        )
        return {}
    level: _Level = {}
    for key, raw in file.items():
        setting = _BY_KEY.get(key) if isinstance(key, str) else None
        if setting is None:
            mistakes.append(_unknown(file_name, str(key), _BY_KEY))
            continue
        _take(level, setting, raw, source=Source.FILE, place=(file_name, key), mistakes=mistakes)
    return level


def _read_variables(
    environ: Mapping[str, str], variables: Mapping[str, Setting], mistakes: list[RequestError]
) -> _Level:
    level: _Level = {}
    for variable, setting in variables.items():
        raw = environ.get(variable, "").strip()
        if raw:
            place = ("environment", variable)
            _take(level, setting, raw, source=Source.ENVIRONMENT, place=place, mistakes=mistakes)
    return level


def _read_flags(flags: Mapping[str, object], mistakes: list[RequestError]) -> _Level:
    level: _Level = {}
    for name, raw in flags.items():
        setting = _BY_KEY.get(name)
        if setting is None:
            mistakes.append(_unknown("command line", name, _BY_KEY))
        elif raw is not None:
            place = ("command line", setting.option)
            _take(level, setting, raw, source=Source.FLAG, place=place, mistakes=mistakes)
    return level


def _take(
    level: _Level,
    setting: Setting,
    raw: object,
    *,
    source: Source,
    place: tuple[str, str],
    mistakes: list[RequestError],
) -> None:
    """Parse one value into its level, or note the mistake."""
    subject, field = place
    try:
        value = setting.parse(raw)
    except ValueError as wrong:
        mistakes.append(
            RequestError(
                subject=subject, field=field, value=raw, problem=str(wrong), accepted=setting.accepted
            )
        )
        return
    level[setting.name] = _Said(source=source, where=field, raw=raw, value=value)


def _unknown_variables(environ: Mapping[str, str]) -> Iterable[RequestError]:
    for variable in sorted(environ):
        known = variable in _BY_OWN_VARIABLE or variable in _NO_SETTINGS or _SERVICE_LINK.fullmatch(variable)
        if variable.startswith(_PREFIX) and not known:
            yield _unknown("environment", variable, _BY_OWN_VARIABLE)


def _unknown(subject: str, field: str, known: Iterable[str]) -> RequestError:
    """Name what was meant, if that can be seen. The value is not repeated: it may be somebody's secret."""
    names = list(known)
    bare = {name.removeprefix(_PREFIX).lower(): name for name in names}
    near = difflib.get_close_matches(field.removeprefix(_PREFIX).lower(), bare, n=1)
    if near:
        meant = bare[near[0]]
        return RequestError(subject=subject, field=field, problem=f"is no setting; did you mean {meant}?")
    return RequestError(subject=subject, field=field, problem="is no setting", accepted=", ".join(names))


def _settle(levels: tuple[_Level, ...]) -> Settings:
    """Let later levels win, and remember who said what."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for level in levels:
        for name, said in level.items():
            if name not in {MODE.name, ENABLE.name}:
                values[_BY_KEY[name].field] = said.value
                origins[name] = _over(origins.get(name, Origin()), said)
    mode, origin = _settle_mode(levels)
    return Settings(realtime_mode=mode, origins={MODE.name: origin, **origins}, **values)


def _settle_mode(levels: tuple[_Level, ...]) -> tuple[RealtimeMode, Origin]:
    """Fold mode and switch of each level, lowest first. A switch that changes nothing is not the origin."""
    mode, origin = Settings().realtime_mode, Origin()
    steps = [level[name] for level in levels for name in (MODE.name, ENABLE.name) if name in level]
    for said in steps:
        named = said.value if isinstance(said.value, RealtimeMode) else None
        new = named or mode_when_enabled(mode, enabled=bool(said.value))
        if named or new is not mode:
            origin = _over(origin, said)
        mode = new
    return mode, origin


def _over(before: Origin, said: _Said) -> Origin:
    raw = str(said.raw).lower() if isinstance(said.raw, bool) else said.raw
    lost = (before.where,) if before.where else ()
    return Origin(source=said.source, where=f"{said.where} = {raw}", overrides=(*before.overrides, *lost))


def _contradictions(settings: Settings) -> Iterable[RequestError]:
    if bool(settings.node_pool_label_key) is not bool(settings.node_pool_label_value):
        yield RequestError(
            subject="settings",
            field="nodePoolLabelKey and nodePoolLabelValue",
            value=f"{settings.node_pool_label_key}={settings.node_pool_label_value}",
            problem="one is set without the other",
            accepted="both, or none for all nodes",
        )
