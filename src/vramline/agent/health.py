"""Whether a card can be trusted, step by step, as a pure function of what was seen and when.

                       doubt                doubt for `doubt_s`, or the `flaps`th fall
        ┌─────────┐ ──────────▶ ┌─────────┐ ──────────▶ ┌───────────┐ ◀─┐
        │ Healthy │             │ Suspect │             │ Unhealthy │   │ doubt or fault,
        └─────────┘ ◀────────── └─────────┘             └───────────┘   │ and the next probation
          ▲     │     calm for `calm_s`                   ▲      │      │ is twice as long
          │     └──────────── fault ──────────────────────┘      │ calm for `cooldown_s`
          │                                                      ▼      │
          │       calm for the whole probation              ┌───────────┐
          └──────────────────────────────────────────────── │ Probation │
                                                            └───────────┘

A fault from anywhere leads to Unhealthy in the same step. Every way back to Healthy needs calm, so a
transient fault heals; every fall in the last hour doubles the probation, so a card that flaps does not look
healthy between two faults. A card that cannot be read is in doubt: silence is no calm.
"""

import enum

import msgspec

from vramline.model.gpu import Health

__all__ = ["Condition", "HealthRules", "Sign", "Signs", "step", "worst"]


class Sign(enum.IntEnum):
    """How bad one look at a card was, worse is more."""

    CALM = 0
    DOUBT = 1
    FAULT = 2


class Signs(msgspec.Struct, frozen=True):
    """What one look says about a card's health, and why."""

    sign: Sign = Sign.CALM
    why: str = ""


def worst(signs: list[Signs]) -> Signs:
    """Return the worst of several, the first of equals; none is calm."""
    return max(signs, key=lambda each: each.sign, default=Signs())


class HealthRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long each way takes."""

    calm_s: float = 10.0
    """Calm after which a suspect card is healthy again."""
    doubt_s: float = 10.0
    """Doubt without calm between after which a suspect card is unhealthy."""
    cooldown_s: float = 30.0
    """Calm after which an unhealthy card is on probation."""
    probation_s: float = 60.0
    """Calm on probation after which a card is healthy, if it fell once."""
    longest_probation_s: float = 1800.0
    window_s: float = 3600.0
    """Falls longer ago than this are forgotten."""
    flaps: int = 4
    """With so many falls in the window, doubt alone makes a card unhealthy."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """All that is remembered of one card. Times are seconds of any clock that does not go back."""

    health: Health = Health.HEALTHY
    since: float = 0.0
    """When it came into this state."""
    calm_since: float | None = None
    """Since when nothing bad was seen; None: the last look was bad, or there was none yet."""
    doubt_since: float | None = None
    """Since when no look was calm; None: the last one was."""
    falls: tuple[float, ...] = ()
    """When it left Healthy, or fell on probation; only the newest few of the window."""
    why: str = ""
    """What was seen last that was bad; kept until the card is healthy again."""


def step(condition: Condition, signs: Signs, now: float, rules: HealthRules) -> Condition:
    """Return the condition after one more look."""
    calm = signs.sign is Sign.CALM
    recent = tuple(fall for fall in condition.falls if now - fall < rules.window_s)
    seen = msgspec.structs.replace(
        condition,
        falls=recent,
        calm_since=(now if condition.calm_since is None else condition.calm_since) if calm else None,
        doubt_since=None if calm else (now if condition.doubt_since is None else condition.doubt_since),
        why=condition.why if calm else signs.why,
    )
    if signs.sign is Sign.FAULT:
        return _fall(seen, Health.UNHEALTHY, now, rules)
    return _rise(seen, now, rules) if calm else _doubt(seen, now, rules)


def _doubt(seen: Condition, now: float, rules: HealthRules) -> Condition:
    match seen.health:
        case Health.HEALTHY:
            flaps = len(seen.falls) + 1 >= rules.flaps
            return _fall(seen, Health.UNHEALTHY if flaps else Health.SUSPECT, now, rules)
        case Health.SUSPECT:
            lasts = seen.doubt_since is not None and now - seen.doubt_since >= rules.doubt_s
            return _enter(seen, Health.UNHEALTHY, now) if lasts else seen
        case Health.PROBATION:
            return _fall(seen, Health.UNHEALTHY, now, rules)
        case _:
            return seen


def _rise(seen: Condition, now: float, rules: HealthRules) -> Condition:
    calm_s = 0.0 if seen.calm_since is None else now - seen.calm_since
    match seen.health:
        case Health.SUSPECT if calm_s >= rules.calm_s:
            return msgspec.structs.replace(_enter(seen, Health.HEALTHY, now), why="")
        case Health.UNHEALTHY if calm_s >= rules.cooldown_s:
            return _enter(seen, Health.PROBATION, now)
        case Health.PROBATION if now - seen.since >= probation_s(seen, rules):
            return msgspec.structs.replace(_enter(seen, Health.HEALTHY, now), why="")
        case _:
            return seen


def probation_s(condition: Condition, rules: HealthRules) -> float:
    """Return how long this card has to stay calm on probation: twice as long for every fall but the first."""
    doublings = max(0, len(condition.falls) - 1)
    return min(rules.longest_probation_s, rules.probation_s * 2.0**doublings)


def _fall(seen: Condition, health: Health, now: float, rules: HealthRules) -> Condition:
    """Go down, and remember it unless the card is down already."""
    if seen.health is health:
        return seen
    if seen.health is Health.SUSPECT:  # the same fall, further down
        return _enter(seen, health, now)
    most = max(rules.flaps, 16)
    return _enter(msgspec.structs.replace(seen, falls=(*seen.falls, now)[-most:]), health, now)


def _enter(seen: Condition, health: Health, now: float) -> Condition:
    return msgspec.structs.replace(seen, health=health, since=now)
