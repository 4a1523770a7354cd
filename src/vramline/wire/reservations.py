"""A reservation's token: what its owner's pods show, and the seal of it that everybody may see."""

import hashlib
import re
from collections.abc import Mapping

from vramline.errors import RequestError
from vramline.wire import keys

__all__ = ["SEAL_PREFIX", "check_tokens", "find_seals", "is_token", "seal_of"]

SEAL_PREFIX = "advance-"
"""How the UID of a claim begins that is no pod's."""

_TOKEN = re.compile(r"[0-9a-f]{32}")
_MOST_TOKENS = 64


def is_token(text: str) -> bool:
    """Whether a text has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def seal_of(token: str) -> str:
    """Return what a ledger holds of a token: enough to know it again, and nothing to make one from.

    >>> seal_of("0" * 32)[:16]
    'advance-84e0c0ea'
    """
    return f"{SEAL_PREFIX}{hashlib.sha256(token.encode()).hexdigest()}"


def find_seals(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the seals of the reservations that a pod names, in its order, each once.

    What names none counts for nothing: anybody who may edit a pod can write it at any time, and nobody else
    must suffer for it. `check_tokens` refuses it when a pod is created.
    """
    if keys.RESERVATION not in annotations:
        return ()
    tokens = _tokens_in(annotations)
    return tuple(map(seal_of, tokens)) if _are_tokens(tokens) else ()


def check_tokens(annotations: Mapping[str, str], *, subject: str) -> None:
    """Raise `RequestError` for a pod that names something else than reservations."""
    if not _are_tokens(_tokens_in(annotations)):
        raise RequestError(
            subject=subject,
            field=f"annotation {keys.RESERVATION}",
            problem="names no reservation",  # its value is a secret
            accepted=f"tokens of reservations, 32 hexadecimal digits each, up to {_MOST_TOKENS} with commas",
        )


def _tokens_in(annotations: Mapping[str, str]) -> list[str]:
    told = annotations.get(keys.RESERVATION)
    return [] if told is None else list(dict.fromkeys(part.strip() for part in told.split(",")))


def _are_tokens(tokens: list[str]) -> bool:
    return len(tokens) <= _MOST_TOKENS and all(map(is_token, tokens))
