"""A reservation's token: what its owner's pods show, and the seal of it that everybody may see."""

import hashlib
import re
from collections.abc import Mapping

from vramline.errors import RequestError
from vramline.wire import keys

__all__ = ["SEAL_PREFIX", "is_token", "read_seals", "seal_of"]

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


def read_seals(annotations: Mapping[str, str], *, subject: str) -> tuple[str, ...]:
    """Return the seals of the reservations that a pod names, in its order, each once."""
    told = annotations.get(keys.RESERVATION)
    if told is None:
        return ()
    tokens = list(dict.fromkeys(part.strip() for part in told.split(",")))
    if len(tokens) > _MOST_TOKENS or not all(map(is_token, tokens)):
        raise RequestError(
            subject=subject,
            field=f"annotation {keys.RESERVATION}",
            problem="names no reservation",  # its value is a secret
            accepted=f"tokens of reservations, 32 hexadecimal digits each, up to {_MOST_TOKENS} with commas",
        )
    return tuple(map(seal_of, tokens))
