"""What all objects of `vramline.io/v1alpha1` have in common."""

import msgspec

from vramline.errors import RequestError
from vramline.wire import keys

__all__ = ["API_VERSION", "OwnMeta", "check_version"]

API_VERSION = f"{keys.GROUP}/v1alpha1"


class OwnMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The part of an object's metadata that we read and write."""

    name: str = ""
    namespace: str | None = None
    resource_version: str | None = None
    uid: str | None = None


def check_version(api_version: str, *, subject: str) -> None:
    """Refuse an object of a version that this program does not know."""
    if api_version != API_VERSION:
        raise RequestError(
            subject=subject,
            field="apiVersion",
            value=api_version,
            problem="is not a version that is known here",
            accepted=API_VERSION,
        )
