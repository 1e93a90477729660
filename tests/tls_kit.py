"""A certificate authority for tests, and what it signs: made anew, good for a day."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates of servers and clients; its own lies in `cert`."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        known = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())  # Python 3.13 asks for it
        builder = _builder(name, name, self._key, timedelta(days=1)).add_extension(
            x509.BasicConstraints(True, None), critical=True
        )
        builder = builder.add_extension(usage, critical=True).add_extension(known, critical=False)
        self._cert = builder.sign(self._key, hashes.SHA256())
        self.cert = directory / f"{name}.pem"
        self.cert.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *hosts: str, expired: bool = False) -> Issued:
        """A certificate for these host names and addresses; one that is there under this name is replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_general(host) for host in hosts or (name,)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        until = timedelta(minutes=-1) if expired else timedelta(days=1)
        builder = _builder(name, self.name, key, until).add_extension(names, critical=False)
        cert = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        issued = Issued(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        issued.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        issued.key.chmod(0o600)
        return issued


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, until: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + until)
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
