"""Filters of role pki: which certificates a host should have, and why one must be made anew.

They read the authority's directory on the controller, so a run that has nothing to do starts no module at
all. Making keys and certificates stays with community.crypto.
"""

from __future__ import annotations

import datetime
import ipaddress
import stat
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# The functions that have an identity, in the order in which a host with several takes its first.
FUNCTIONS = ("node", "rack", "region", "lake", "logs", "gateway", "alerts", "archive")
# People who ask: the unit of their certificates, and where the model lists them.
PEOPLE = {"tenant": "tenants", "administrator": "administrators"}
USAGES = {"clientAuth": ExtendedKeyUsageOID.CLIENT_AUTH, "serverAuth": ExtendedKeyUsageOID.SERVER_AUTH}
# What a dry run shows in place of a certificate that is not made yet.
PLACEHOLDER = "made at the first real run\n"


def wanted(model: dict[str, Any], host: str, hosts: list[str]) -> list[dict[str, Any]]:
    """The certificates that this host's turn makes: its own, and its share of people's.

    People belong to no host; spreading them over the hosts of the play makes theirs in parallel, and none is
    left out when the play is limited.
    """
    self = model["hosts"][host]
    names = [f"DNS:{host}"]
    for interface in self["interfaces"].values():
        names += [f"IP:{interface[family]}" for family in ("ipv4", "ipv6") if interface.get(family)]
    own = [
        {
            "name": f"{word}-{host}",
            "common_name": host,
            "unit": word,
            "names": names,
            "usages": ["clientAuth", "serverAuth"],
            "own": True,
        }
        for word in FUNCTIONS
        if word in self["words"]
    ]
    people = [
        {
            "name": f"{unit}-{one['name']}",
            "common_name": one["certificate"],
            "unit": unit,
            # People only ask: what serves nothing has no name by which it could be taken for a host.
            "names": [],
            "usages": ["clientAuth"],
            "own": False,
        }
        for unit, noun in PEOPLE.items()
        for one in model[noun]
    ]
    return own + people[hosts.index(host) :: len(hosts)]


def authority_reason(directory: str, renew_days: int) -> str:
    """Why the authority must be made or renewed; '' when it stands."""
    try:
        certificate = _certificate(Path(directory, "ca.crt"))
        key = _key(Path(directory, "ca.key"))
        if stat.S_IMODE(Path(directory).stat().st_mode) & 0o077:
            return "its directory is open to others"
    except _UnfitError as error:
        return str(error)
    if _public(certificate.public_key()) != _public(key.public_key()):
        return "its key is not the certificate's"
    return _ends_soon(certificate, renew_days)


def certificate_reason(want: dict[str, Any], directory: str, renew_days: int) -> str:
    """Why this certificate must be made anew; '' when it stands."""
    try:
        authority = _certificate(Path(directory, "ca.crt"))
        certificate = _certificate(Path(directory, want["name"] + ".crt"))
        key = _key(Path(directory, want["name"] + ".key"))
    except _UnfitError as error:
        return str(error)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return "another authority issued it"
    if _public(certificate.public_key()) != _public(key.public_key()):
        return "its key is not the certificate's"
    if _attributes(certificate) != (want["common_name"], want["unit"]):
        return "its subject differs"
    if _alternative_names(certificate) != {_canonical(name) for name in want["names"]}:
        return "its names or addresses differ"
    if _usages(certificate) != {USAGES[usage] for usage in want["usages"]}:
        both = len(want["usages"]) > 1
        return "it is not for client and server" if both else "it is not for a client alone"
    return _ends_soon(certificate, renew_days)


def judged(
    model: dict[str, Any], hosts: list[str], directory: str, renew_days: int
) -> dict[str, list[dict[str, Any]]]:
    """Every host's certificates with the reason to make each anew, once for the whole play."""
    return {
        host: [
            {**want, "reason": certificate_reason(want, directory, renew_days)}
            for want in wanted(model, host, hosts)
        ]
        for host in hosts
    }


def identities(certificates: list[dict[str, Any]], directory: str, dry: bool) -> dict[str, dict[str, str]]:
    """The host's identities by function, as texts; people's certificates are not the host's."""
    return {
        want["unit"]: {
            "ca": _text(Path(directory, "ca.crt"), dry),
            "certificate": _text(Path(directory, want["name"] + ".crt"), dry),
            "key": _text(Path(directory, want["name"] + ".key"), dry),
        }
        for want in certificates
        if want["own"]
    }


def _text(path: Path, dry: bool) -> str:
    """Only a dry run may find nothing yet."""
    if path.is_file():
        return path.read_text(encoding="ascii")
    if dry:
        return PLACEHOLDER
    raise AnsibleFilterError(f"{path}: missing; hint: run playbooks/pki.yml without --check first")


class _UnfitError(Exception):
    """A file of the authority that is missing, unreadable or open to others."""


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise _UnfitError(f"{path.name} is missing") from None
    except ValueError:
        raise _UnfitError(f"{path.name} is no certificate") from None


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise _UnfitError(f"{path.name} is readable by others")
        key = load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise _UnfitError(f"{path.name} is missing") from None
    except (ValueError, TypeError):
        raise _UnfitError(f"{path.name} is no private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _UnfitError(f"{path.name} is not of the wanted kind")
    return key


def _public(key: Any) -> bytes:
    return bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _attributes(certificate: x509.Certificate) -> tuple[str, str]:
    def first(oid: x509.ObjectIdentifier) -> str:
        found = certificate.subject.get_attributes_for_oid(oid)
        return str(found[0].value) if len(found) == 1 else ""

    return first(NameOID.COMMON_NAME), first(NameOID.ORGANIZATIONAL_UNIT_NAME)


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {f"DNS:{name}" for name in names.get_values_for_type(x509.DNSName)} | {
        f"IP:{address}" for address in names.get_values_for_type(x509.IPAddress)
    }


def _canonical(name: str) -> str:
    kind, _, value = name.partition(":")
    return f"IP:{ipaddress.ip_address(value)}" if kind == "IP" else name


def _usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return set()


def _ends_soon(certificate: x509.Certificate, renew_days: int) -> str:
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)
    return f"it ends in {max(left.days, 0)} days" if left.days < renew_days else ""


def ends(directory: str, model: dict[str, Any]) -> list[dict[str, Any]]:
    """When the certificates of hosts end, the authority's too: {function, host, ends}, in seconds since 1970.
    What is not there yet has no end."""
    wanted = [("ca", "", "ca")]
    for name, host in sorted(model["hosts"].items()):
        wanted += [(word, name, f"{word}-{name}") for word in FUNCTIONS if word in host["words"]]
    found = []
    for function, name, stem in wanted:
        try:
            until = _certificate(Path(directory, f"{stem}.crt")).not_valid_after_utc
        except _UnfitError:
            continue
        found.append({"function": function, "host": name, "ends": int(until.timestamp())})
    return found


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_pki_authority_reason": authority_reason,
            "sideband_pki_judged": judged,
            "sideband_pki_identities": identities,
            "sideband_pki_ends": ends,
        }
