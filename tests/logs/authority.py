"""An authority and certificates as role pki makes them, without a play."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        made = self._started(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(True, 0), True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, True)
        self._text = self._pem(made.sign(self._key, hashes.SHA256()))
        (directory / "ca.crt").write_text(self._text)

    def _started(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        hour = datetime.timedelta(hours=1)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        made = made.serial_number(x509.random_serial_number())
        # Python 3.13 is strict: a certificate without these two is none to it.
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = made.add_extension(issuer, False)
        return made.not_valid_before(now - hour).not_valid_after(now + 24 * hour)

    @staticmethod
    def _pem(certificate: x509.Certificate) -> str:
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def identity(self, unit: str, name: str) -> dict[str, str]:
        """{ca, certificate, key} of a function and host; also as files UNIT-NAME.crt and .key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
        ])  # fmt: skip
        made = self._started(subject, key.public_key())
        if unit != "tenant":
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        both = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        made = made.add_extension(x509.ExtendedKeyUsage(both), False)
        certificate = self._pem(made.sign(self._key, hashes.SHA256()))
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        (self._directory / f"{unit}-{name}.crt").write_text(certificate)
        (self._directory / f"{unit}-{name}.key").write_text(text)
        return {"ca": self._text, "certificate": certificate, "key": text}
