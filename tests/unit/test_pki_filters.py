"""Which certificates a host should have, and every reason to make one anew (case 1, case 62)."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from filter_plugins import pki

MODEL: dict[str, Any] = {
    "tenants": [{"name": "a", "certificate": "alpha"}, {"name": "b", "certificate": "beta"}],
    "administrators": [{"name": "ops", "certificate": "operator"}],
    "hosts": {
        "node1": {
            "words": ["node"],
            "interfaces": {
                "edge": {"ipv4": "10.21.0.11", "ipv6": "fd00:5b:21:0::11"},
                "v6": {"ipv6": "fd00::7"},
            },
        },
        "mgmt1": {"words": ["mirror", "policy"], "interfaces": {}},
    },
}
WANT = {
    "name": "node-node1",
    "common_name": "node1",
    "unit": "node",
    "names": ["DNS:node1", "IP:10.21.0.11", "IP:fd00:5b:21:0::11"],
    "usages": ["clientAuth", "serverAuth"],
}


def issue(
    directory: Path,
    name: str,
    *,
    common_name: str = "node1",
    unit: str = "node",
    days: int = 365,
    addresses: tuple[str, ...] = ("10.21.0.11", "fd00:5b:21::11"),
    usages: tuple[x509.ObjectIdentifier, ...] = (
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    ),
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    signer_name, signer_key = issuer or (subject, key)
    names = [x509.DNSName(common_name)] + [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
    certificate = (
        x509.CertificateBuilder(issuer_name=signer_name, subject_name=subject, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=400))
        .not_valid_after(now + datetime.timedelta(days=days, minutes=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(list(usages)), critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    (directory / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    file = directory / f"{name}.key"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    file.chmod(0o600)
    return subject, key


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "pki"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def authority(directory: Path) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    return issue(directory, "ca", common_name="sideband lab", unit="ca")


def reason(directory: Path) -> str:
    return pki.certificate_reason(WANT, str(directory), 30)


def test_a_host_gets_its_functions_and_its_share_of_the_tenants() -> None:
    hosts = ["node1", "mgmt1"]
    first, second = (pki.wanted(MODEL, host, hosts) for host in hosts)
    assert [want["name"] for want in first] == ["node-node1", "tenant-a", "administrator-ops"]
    assert first[0]["names"] == ["DNS:node1", "IP:10.21.0.11", "IP:fd00:5b:21:0::11", "IP:fd00::7"]
    assert [want["name"] for want in second] == ["tenant-b"]
    assert second[0]["common_name"] == "beta"


def test_a_tenant_cannot_pass_for_a_host(directory: Path, authority: Any) -> None:
    """B5, Q5: whoever asks for a host by name, or for a server, gets no tenant for an answer."""
    want, administrator = pki.wanted({**MODEL, "tenants": MODEL["tenants"][:1]}, "mgmt1", ["mgmt1"])
    assert (administrator["unit"], administrator["common_name"]) == ("administrator", "operator")
    assert administrator["usages"] == ["clientAuth"]
    assert (want["names"], want["usages"]) == ([], ["clientAuth"])
    issue(directory, "tenant-a", common_name="alpha", unit="tenant", addresses=(), issuer=authority)
    said = pki.certificate_reason({**want, "names": ["DNS:alpha"]}, str(directory), 30)
    assert said == "it is not for a client alone"
    assert pki.certificate_reason(want, str(directory), 30) == "its names or addresses differ"


def test_every_host_of_the_play_is_judged_at_once(directory: Path, authority: Any) -> None:
    issue(directory, "node-node1", issuer=authority, addresses=("10.21.0.11", "fd00:5b:21::11", "fd00::7"))
    found = pki.judged(MODEL, ["node1", "mgmt1"], str(directory), 30)
    reasons = {host: {want["name"]: want["reason"] for want in wants} for host, wants in found.items()}
    assert reasons == {
        "node1": {
            "node-node1": "",
            "tenant-a": "tenant-a.crt is missing",
            "administrator-ops": "administrator-ops.crt is missing",
        },
        "mgmt1": {"tenant-b": "tenant-b.crt is missing"},
    }


def test_case_2_a_limited_run_still_makes_every_tenant() -> None:
    assert [want["name"] for want in pki.wanted(MODEL, "mgmt1", ["mgmt1"])] == [
        "tenant-a", "tenant-b", "administrator-ops",
    ]  # fmt: skip


def test_a_certificate_that_fits_is_kept(directory: Path, authority: Any) -> None:
    issue(directory, "node-node1", issuer=authority)
    assert reason(directory) == ""
    assert pki.authority_reason(str(directory), 30) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"days": 29}, "it ends in 29 days"),
        ({"days": -1}, "it ends in 0 days"),
        ({"common_name": "node2"}, "its subject differs"),
        ({"unit": "rack"}, "its subject differs"),
        ({"addresses": ("10.21.0.11",)}, "its names or addresses differ"),
        ({"addresses": ("10.21.0.11", "fd00:5b:21::12")}, "its names or addresses differ"),
        ({"usages": (ExtendedKeyUsageOID.SERVER_AUTH,)}, "it is not for client and server"),
    ],
)
def test_a_certificate_that_does_not_fit_is_made_anew(
    directory: Path, authority: Any, change: dict[str, Any], words: str
) -> None:
    issue(directory, "node-node1", issuer=authority, **change)
    assert reason(directory) == words


def test_case_62_a_half_replaced_pair_is_made_anew(directory: Path, authority: Any) -> None:
    issue(directory, "node-node1", issuer=authority)
    old = (directory / "node-node1.key").read_bytes()
    issue(directory, "node-node1", issuer=authority)
    (directory / "node-node1.key").write_bytes(old)
    assert reason(directory) == "its key is not the certificate's"


def test_another_authority_makes_every_certificate_anew(directory: Path, authority: Any) -> None:
    issue(directory, "node-node1", issuer=authority)
    issue(directory, "ca", common_name="sideband lab", unit="ca")
    assert reason(directory) == "another authority issued it"


def test_files_that_are_missing_broken_or_open_are_reasons(directory: Path, authority: Any) -> None:
    assert reason(directory) == "node-node1.crt is missing"
    issue(directory, "node-node1", issuer=authority)
    (directory / "node-node1.key").chmod(0o640)
    assert reason(directory) == "node-node1.key is readable by others"
    (directory / "node-node1.key").write_text("cut short")
    (directory / "node-node1.key").chmod(0o600)
    assert reason(directory) == "node-node1.key is no private key"
    (directory / "node-node1.crt").write_text("cut short")
    assert reason(directory) == "node-node1.crt is no certificate"


def test_the_authority_is_judged_too(directory: Path) -> None:
    assert pki.authority_reason(str(directory / "none"), 30) == "ca.crt is missing"
    issue(directory, "ca", days=3)
    assert pki.authority_reason(str(directory), 30) == "it ends in 3 days"
    directory.chmod(0o755)
    assert pki.authority_reason(str(directory), 30) == "its directory is open to others"


def test_identities_are_texts_by_function_and_exclude_tenants(directory: Path, authority: Any) -> None:
    issue(directory, "node-node1", issuer=authority)
    certificates = pki.wanted(MODEL, "node1", ["node1"])
    found = pki.identities(certificates, str(directory), False)
    assert list(found) == ["node"]
    assert found["node"]["key"].startswith("-----BEGIN PRIVATE KEY-----")


def test_case_1_only_a_dry_run_may_lack_an_identity(directory: Path) -> None:
    certificates = pki.wanted(MODEL, "node1", ["node1"])
    assert pki.identities(certificates, str(directory), True)["node"]["ca"] == pki.PLACEHOLDER
    with pytest.raises(AnsibleFilterError, match=r"ca\.crt: missing; hint"):
        pki.identities(certificates, str(directory), False)
