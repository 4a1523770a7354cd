"""Writes that an API server noted down in its audit log, by user."""

from collections import Counter

import msgspec

from controlplane.plane import ControlPlane

__all__ = ["Writes"]


class Subject(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""


class User(msgspec.Struct):
    username: str


class Write(msgspec.Struct, rename="camel"):
    """One line of the audit log."""

    verb: str
    user: User
    object_ref: Subject = Subject()


class Writes:
    """Writes since this was made, by user; Leases, which are renewed all the time, are left out."""

    def __init__(self, plane: ControlPlane) -> None:
        assert plane.audit_log is not None
        self._log = plane.audit_log
        self._seen = len(self._read())

    def of(self, user: str) -> Counter[str]:
        since = (msgspec.json.decode(line, type=Write) for line in self._read()[self._seen :])
        return Counter(
            f"{write.verb} {_name(write.object_ref)}"
            for write in since
            if write.user.username == user and write.object_ref.resource != "leases"
        )

    def _read(self) -> list[bytes]:
        whole = self._log.read_bytes().rpartition(b"\n")[0]
        return whole.split(b"\n") if whole else []


def _name(subject: Subject) -> str:
    return f"{subject.resource}/{subject.subresource}".rstrip("/")
