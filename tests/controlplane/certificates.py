"""Keys and certificates of a control plane that lives for one test run."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "write_service_account_keys"]

_LIFETIME = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that writes what it signs into one folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """Make a new authority; its certificate is `ca.crt`."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        certificate = (
            _blank(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        (folder / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, key, certificate)

    def issue_server(self, name: str) -> None:
        """Write `<name>.crt` and `<name>.key` for a server on loopback."""
        names = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("10.96.0.1")),
            *(x509.DNSName(each) for each in ("localhost", "kubernetes", "kubernetes.default.svc")),
        ]
        self._issue(name, x509.Name([_common(name)]), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, name: str, user: str, *groups: str) -> None:
        """Write `<name>.crt` and `<name>.key` for a user with these groups."""
        organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organisations, _common(user)])
        self._issue(name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(
        self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _blank(subject, self.certificate.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        (self.folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_private(self.folder / f"{name}.key", key)


def write_service_account_keys(folder: Path) -> None:
    """Write `sa.key` and `sa.pub`, with which the API server signs and checks tokens."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_private(folder / "sa.key", key)
    (folder / "sa.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _common(name: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(NameOID.COMMON_NAME, name)


def _blank(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=2))
        .not_valid_after(now + _LIFETIME)
    )


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
