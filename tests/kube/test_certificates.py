"""Who is trusted, and what is served, as time goes by."""

import datetime as dt

import msgspec
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from vramline.kube.certificates import (
    Lifetimes,
    TlsIdentity,
    read_identity,
    renew_identity,
    write_identity,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
NAMES = ("vramline-webhook.vramline-system.svc", "127.0.0.1")


def renew(identity: TlsIdentity | None, days: float = 0, names: tuple[str, ...] = NAMES) -> TlsIdentity:
    return renew_identity(identity, names=names, now=NOW + days * DAY)


def authorities(identity: TlsIdentity) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(identity.trusted)


def server(identity: TlsIdentity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.certificate)


def signer(identity: TlsIdentity) -> int:
    """The place of the server's authority among those that are trusted."""
    issuers = [each.subject for each in authorities(identity)]
    return issuers.index(server(identity).issuer)


def test_the_first_identity_can_be_served_at_once() -> None:
    identity = renew(None)
    names = server(identity).extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert server(identity).not_valid_after_utc == NOW + 90 * DAY
    assert names.get_values_for_type(x509.DNSName) == ["vramline-webhook.vramline-system.svc"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert signer(identity) == 0


def test_nothing_changes_before_it_is_due() -> None:
    identity = renew(None)

    assert renew(identity, days=60) == identity


def test_the_server_certificate_is_renewed_thirty_days_before_its_end() -> None:
    identity = renew(None)
    later = renew(identity, days=60.1)

    assert later.certificate != identity.certificate
    assert later.trusted == identity.trusted


def test_other_names_are_another_certificate() -> None:
    identity = renew(None)

    assert renew(identity, names=("other.svc",)).certificate != identity.certificate


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    identity = renew(None)
    for days in (61, 122, 183, 244):
        identity = renew(identity, days=days)

    prepared = renew(identity, days=246)

    assert len(authorities(prepared)) == 2
    assert prepared.certificate == identity.certificate
    assert signer(prepared) == 1
    assert renew(prepared, days=246 + 1 / 24 / 60) == prepared, "one minute later: not everyone has heard yet"

    changed = renew(prepared, days=246 + 3 / 24 / 60)

    assert signer(changed) == 0
    assert changed.trusted == prepared.trusted


def test_an_old_authority_is_dropped_when_it_has_expired() -> None:
    identity = renew(None)
    for days in (61, 122, 183, 244, 246, 247, 308, 369):
        identity = renew(identity, days=days)

    assert len(authorities(identity)) == 1
    assert signer(identity) == 0


def test_after_a_long_absence_everything_is_new() -> None:
    identity = renew(None)
    later = renew(identity, days=91)

    assert authorities(later) != authorities(identity)
    assert server(later).not_valid_after_utc == NOW + 181 * DAY


def test_what_is_written_is_what_is_read() -> None:
    identity = renew(None)

    assert read_identity(write_identity(identity)) == identity


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("how", ["missing", "empty", "junk", "another's"])
def test_a_secret_that_does_not_hold_together_is_as_good_as_empty(name: str, how: str) -> None:
    data, other = write_identity(renew(None)), write_identity(renew(None))
    data[name] = {"missing": b"", "empty": b"\n", "junk": b"-----BEGIN", "another's": other[name]}[how]
    if how == "missing":
        del data[name]

    assert read_identity(data) is None


@given(st.lists(st.floats(0, 80), min_size=1, max_size=12))
def test_whoever_trusts_the_last_bundle_can_always_check_what_is_served(steps: list[float]) -> None:
    identity = renew(None)
    day = 0.0
    for step in steps:
        day += step
        before, identity = identity, renew(identity, days=day)
        now = NOW + day * DAY
        assert server(identity).not_valid_after_utc > now
        assert any(
            each.not_valid_after_utc >= server(identity).not_valid_after_utc for each in authorities(identity)
        )
        if identity.certificate != before.certificate and server(before).not_valid_after_utc > now:
            issuers = [each.subject for each in authorities(before)]
            assert server(identity).issuer in issuers, "signed by somebody who was not trusted before"


def test_lifetimes_keep_a_certificate_within_its_authority() -> None:
    lives = Lifetimes()

    assert lives.authority_margin >= lives.server
    assert msgspec.structs.replace(lives, server=DAY).server == DAY
