"""Filters of role policy: who takes documents, what each end is told, and what a request must look like."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
for place in (ROOT, ROOT / "module_utils"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))

# What is heavy is imported where it is used: every task's process loads every filter file.

KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")


def program(name: str) -> str:
    """One of the programs for hosts, in base64; equal sources give equal bytes."""
    from services import build

    return base64.b64encode(build.archive(name)).decode("ascii")


def _management_address(host: Mapping[str, Any]) -> str:
    for interface in host["interfaces"].values():
        if interface["kind"] == "management":
            found = interface.get("ipv4") or interface.get("ipv6")
            if found:
                return str(found)
    return str(host["address"])


def receivers(model: Mapping[str, Any], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every rack receiver as the signer reaches it: over management, at its own SSH port (case 22)."""
    found = []
    for rack, members in model["racks"].items():
        for receiver in members["receivers"]:
            found.append(
                {
                    "name": receiver,
                    "rack": rack,
                    "address": _management_address(model["hosts"][receiver]),
                    "port": int(hostvars[receiver].get("ansible_port", 22)),
                    "nodes": list(members["nodes"]),
                    # A receiver on the origin itself is handed the document there: no SSH, no key.
                    "local": "policy" in model["hosts"][receiver]["words"],
                }
            )
    return found


def host_keys(hostvars: Mapping[str, Any], racks: list[str]) -> dict[str, str]:
    """The host keys that have been read in this run."""
    found = {rack: hostvars[rack].get("sideband_policy_host_key", "") for rack in racks}
    return {rack: str(key) for rack, key in found.items() if key}


def known_hosts(targets: list[dict[str, Any]], keys: Mapping[str, str]) -> str:
    """The receivers' host keys, whole or not at all (case 2: never a shortened list)."""
    targets = [target for target in targets if not target["local"]]
    missing = [target["name"] for target in targets if not keys.get(target["name"], "").strip()]
    if missing:
        raise AnsibleFilterError(
            f"known_hosts: no host key of {', '.join(missing)}; hint: reach them in the same run, "
            "or take them out of the inventory"
        )
    lines = []
    for target in targets:
        address, port = target["address"], target["port"]
        name = address if port == 22 else f"[{address}]:{port}"
        words = keys[target["name"]].split()
        if len(words) < 2 or words[0] not in KEY_TYPES:
            raise AnsibleFilterError(
                f"known_hosts: {target['name']} has no usable host key (got {words[:1]!r})"
            )
        lines.append(f"{name} {words[0]} {words[1]}\n")
    return "".join(lines)


def allowed_signers(public: str, offline: list[str]) -> str:
    """Who may sign, and for what. Without any key the list says so and trusts nobody."""
    from sideband import documents

    lines = []
    for key in [public, *offline]:
        words = key.split()
        if not words:
            continue
        if len(words) < 2 or words[0] not in KEY_TYPES:
            raise AnsibleFilterError(f"sideband_policy_offline_key: no public SSH key (got {key[:40]!r})")
        lines.append(f'{documents.IDENTITY} namespaces="{documents.NAMESPACE}" {words[0]} {words[1]}\n')
    return "".join(lines) or "# no key has been made yet\n"


def origin(
    model: Mapping[str, Any], targets: list[dict[str, Any]], *, state: str, configuration: str
) -> dict[str, Any]:
    """The configuration of sideband-level."""
    return {
        "site": model["site"],
        "order": model["ladder"]["order"],
        "racks": targets,
        "signing_key": f"{state}/signing_key",
        "rack_key": f"{state}/rack_key",
        "known_hosts": f"{configuration}/known_hosts",
        "user": "sideband-accept",
        "state_directory": state,
    }


def accept(
    model: Mapping[str, Any], receiver: str, *, state: str, configuration: str, admin_socket: str
) -> dict[str, Any]:
    """The configuration of sideband-accept on one receiver."""
    from sideband import levels as ladders

    rack = model["hosts"][receiver]["rack"]
    if rack not in model["racks"]:
        raise AnsibleFilterError(
            f"{receiver}: sideband_rack: names no rack (got {rack!r}); hint: set it in host_vars"
        )
    return {
        "site": model["site"],
        "rack": rack,
        "nodes": list(model["racks"][rack]["nodes"]),
        "order": model["ladder"]["order"],
        "levels": ladders.intake_limits(model["ladder"]),
        "admin_socket": admin_socket,
        "documents_map": f"{state}/documents.map",
        "intake_map": f"{state}/intake.map",
        "allowed_signers": f"{configuration}/allowed_signers",
        "state_directory": state,
    }


def authorized_key(public: str, command: str) -> str:
    """One key that may do one thing."""
    return (
        f'restrict,command="{command}" {public.strip()}\n'
        if public.strip()
        else "# no key has been made yet\n"
    )


def request_errors(request: Mapping[str, Any], needed: list[str], limit: str = "") -> list[str]:
    """What is wrong with the extra variables of a verb, before anything else is looked at."""
    from sideband import fleet

    return fleet.request_errors(request, needed, str(limit))


def request(model: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The request against the contract: the nodes meant, and what their level shows."""
    from sideband import fleet

    errors = fleet.contract_errors(model, asked)
    if errors:
        raise AnsibleFilterError("; ".join(errors))
    return fleet.expectation(model, asked)


def findings(
    issued: Mapping[str, Any], expected: Mapping[str, Any], seen: Mapping[str, Any], started: float
) -> dict[str, Any]:
    """Figures and checks of a rollback or restore that began at `started`, seconds since the epoch."""
    from sideband import fleet

    return fleet.findings(expected, issued, seen, time.time() - float(started))


def report_text(found: Mapping[str, Any], name: str, directory: str, versions: Mapping[str, Any]) -> str:
    """The findings as reports/<name>.json holds them."""
    from sideband import report

    composed = report.compose(
        name, found["pass"], found["figures"], found["checks"], versions, report.commit(directory)
    )
    return json.dumps(composed, indent=1, ensure_ascii=False) + "\n"


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_policy_program": program,
            "sideband_policy_receivers": receivers,
            "sideband_policy_host_keys": host_keys,
            "sideband_policy_known_hosts": known_hosts,
            "sideband_policy_allowed_signers": allowed_signers,
            "sideband_policy_origin": origin,
            "sideband_policy_accept": accept,
            "sideband_policy_authorized_key": authorized_key,
            "sideband_policy_request_errors": request_errors,
            "sideband_policy_request": request,
            "sideband_policy_findings": findings,
            "sideband_policy_report": report_text,
        }
