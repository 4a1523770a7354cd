"""The webhook's own certificates: an authority nobody else knows, and a server certificate signed by it.

Renewal is a function of what is stored and of the time. A new authority is trusted before anything signed by
it is served, and an old one until it expires, so that no caller ever meets a certificate it cannot check:

    authority due     →  a second authority is trusted; the server keeps its certificate
    `settle` later    →  the server gets a certificate signed by the new authority
    old one expires   →  it is no longer trusted
"""

import datetime as dt
import ipaddress

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Lifetimes", "TlsIdentity", "read_identity", "renew_identity", "trusted_until", "write_identity"]

_DAY = dt.timedelta(days=1)
_BACKDATED = dt.timedelta(minutes=5)
"""A certificate is valid from a little before it was made: clocks differ."""
_TRUSTED, _SIGNING_KEY, _CERTIFICATE, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class Lifetimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long certificates last, and how long before their end they are replaced."""

    authority: dt.timedelta = 365 * _DAY
    authority_margin: dt.timedelta = 120 * _DAY
    """More than a server certificate's life: none may outlive the authority that signed it."""
    server: dt.timedelta = 90 * _DAY
    server_margin: dt.timedelta = 30 * _DAY
    settle: dt.timedelta = dt.timedelta(minutes=2)
    """Until every API server trusts a new authority."""


class TlsIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in PEM. Whoever checks the server trusts all of `trusted`; the first of them signs."""

    trusted: bytes
    signing_key: bytes
    certificate: bytes
    key: bytes


class _Authority(msgspec.Struct, frozen=True):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def write_identity(identity: TlsIdentity) -> dict[str, bytes]:
    """Return the identity as the data of a Secret."""
    return {
        _TRUSTED: identity.trusted,
        _SIGNING_KEY: identity.signing_key,
        _CERTIFICATE: identity.certificate,
        _KEY: identity.key,
    }


def read_identity(data: dict[str, bytes]) -> TlsIdentity | None:
    """Return what a Secret holds; None: nothing that can be used, so that all must be made anew."""
    if any(not data.get(name) for name in (_TRUSTED, _SIGNING_KEY, _CERTIFICATE, _KEY)):
        return None
    identity = TlsIdentity(
        trusted=data[_TRUSTED],
        signing_key=data[_SIGNING_KEY],
        certificate=data[_CERTIFICATE],
        key=data[_KEY],
    )
    return identity if _is_sound(identity) else None


def trusted_until(bundle: bytes) -> dt.datetime | None:
    """Return when the last authority of a bundle expires; None: there is none in it."""
    try:
        return max(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(bundle))
    except ValueError:
        return None


def renew_identity(
    given: TlsIdentity | None, *, names: tuple[str, ...], now: dt.datetime, lifetimes: Lifetimes | None = None
) -> TlsIdentity:
    """Return what should be stored now: the same, where nothing is due.

    `names` are the DNS names and addresses under which the server is called. At most one step is taken, so
    that what is returned can be published before the next one. `given` must come from `read_identity`.
    """
    lives = lifetimes or Lifetimes()
    if given is None:
        return _start(names, now, lives)
    authorities = x509.load_pem_x509_certificates(given.trusted)
    current, *_ = authorities
    server = x509.load_pem_x509_certificate(given.certificate)
    if server.not_valid_after_utc <= now:
        return _start(names, now, lives)  # nobody trusts it any more, so there is nothing to overlap with
    if current.not_valid_after_utc - now < lives.authority_margin and _is_signed_by(server, current):
        new = _make_authority(now, lives)
        return msgspec.structs.replace(
            given, trusted=_bundle([new.certificate, *authorities], now), signing_key=_write_key(new.key)
        )
    if _is_server_due(server, current, names, now, lives):
        authority = _Authority(current, _read_key(given.signing_key))
        certificate, key = _make_server(authority, names, now, lives)
        return msgspec.structs.replace(
            given, trusted=_bundle(authorities, now), certificate=certificate, key=key
        )
    return given


def _start(names: tuple[str, ...], now: dt.datetime, lives: Lifetimes) -> TlsIdentity:
    authority = _make_authority(now, lives)
    certificate, key = _make_server(authority, names, now, lives)
    return TlsIdentity(
        trusted=_bundle([authority.certificate], now),
        signing_key=_write_key(authority.key),
        certificate=certificate,
        key=key,
    )


def _is_server_due(
    server: x509.Certificate,
    current: x509.Certificate,
    names: tuple[str, ...],
    now: dt.datetime,
    lives: Lifetimes,
) -> bool:
    is_settled = now - (current.not_valid_before_utc + _BACKDATED) >= lives.settle
    if not _is_signed_by(server, current):
        return is_settled
    is_old = server.not_valid_after_utc - now < lives.server_margin
    return is_old or _names_of(server) != _general_names(names)


def _make_authority(now: dt.datetime, lives: Lifetimes) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"vramline-webhook-ca-{serial % 2**32:08x}")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lives.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Authority(certificate, key)


def _make_server(
    authority: _Authority, names: tuple[str, ...], now: dt.datetime, lives: Lifetimes
) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vramline-webhook")])
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        x509.CertificateBuilder(
            authority.certificate.subject, subject, key.public_key(), x509.random_serial_number()
        )
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(min(now + lives.server, authority.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), _write_key(key)


def _general_names(names: tuple[str, ...]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _names_of(server: x509.Certificate) -> list[x509.GeneralName]:
    return list(server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def _is_signed_by(server: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        server.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError):
        return False
    return True


def _bundle(authorities: list[x509.Certificate], now: dt.datetime) -> bytes:
    valid = [each for each in authorities if each.not_valid_after_utc > now]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in valid)


def _write_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("is not a key of ours")  # noqa: TRY004 — the same as a text that is no key
    return key


def _is_sound(identity: TlsIdentity) -> bool:
    """Whether all parts can be read and belong together."""
    try:
        authorities = x509.load_pem_x509_certificates(identity.trusted)
        server = x509.load_pem_x509_certificate(identity.certificate)
        pairs = [
            (authorities[0], _read_key(identity.signing_key)),
            (server, _read_key(identity.key)),
        ]
        _names_of(server)
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False
    belong = all(certificate.public_key() == key.public_key() for certificate, key in pairs)
    return belong and any(_is_signed_by(server, authority) for authority in authorities)
