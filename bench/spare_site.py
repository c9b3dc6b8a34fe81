"""Spare hosts as members of a site of their own: bare, on the management bridge, beside the lab.

A spare host gets the links that its role's planes want (veth pairs whose far end leads nowhere), an
inventory that holds the lab's contract with the spare host in place of one of the lab's, and nothing else. So
whatever is done to it touches no other host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / "inventories/lab"
sys.path[:0] = [str(ROOT), str(ROOT / "module_utils")]

from sideband import report  # the path above has to be set first


class BenchError(Exception):
    """The bench cannot go on; the text says why and what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Spare:
    """`like`: the host of the lab whose place it takes, with its groups, planes and addresses."""

    name: str
    suite: str
    like: str


def run(words: Sequence[str], text: str | None = None, seconds: float = 600, **more: Any) -> str:
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, timeout=seconds, check=False, cwd=ROOT, **more
    )
    if done.returncode != 0:
        raise BenchError(
            f"{' '.join(words)[:200]}: ended with {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout


def lab(*words: str, text: str | None = None) -> str:
    return run([str(ROOT / "lab/lab"), *words], text)


def inside(host: str, *words: str, text: str | None = None) -> str:
    return lab("exec", host, *words, text=text)


def snapshot(host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        inside(host, "python3", "-", text=(ROOT / "bench/snapshot.py").read_text())
    )
    return found


def play(inventory: Path, book: str, *options: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    words = [
        str(ROOT / ".venv/bin/ansible-playbook"),
        "-i",
        str(inventory),
        f"playbooks/{book}.yml",
        *options,
    ]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=900, check=False, cwd=ROOT, env=environment
    )
    if code is not None and done.returncode != code:
        raise BenchError(
            f"{' '.join(words[3:])}: ended with {done.returncode}, wanted {code}\n"
            f"{(done.stdout + done.stderr)[-4000:]}"
        )
    return done


def conclude(
    name: str,
    figures: Mapping[str, Any],
    checks: Sequence[Mapping[str, Any]],
    versions: Mapping[str, Any],
    directory: str,
) -> int:
    """Write a bench's report, print its figures; the bench's exit status."""
    passed = report.passes(checks)
    report.write(name, passed, figures, checks, versions, directory)
    print(json.dumps({"pass": passed, **figures}, indent=1))
    return 0 if passed else 1


def devices(like: str) -> list[str]:
    """The links of a host of the lab, without the management link, which every spare host has."""
    topology = yaml.safe_load((ROOT / "lab/topology.yml").read_text())
    return [link["device"] for link in topology["hosts"][like]["links"] if link["plane"] != "management"]


def address(name: str) -> str:
    """Asked of the host itself: the lab's status speaks of every host, and another may be starting anew."""
    text = inside(name, "ip", "-4", "-o", "address", "show", "mgmt0")
    return text.split()[3].split("/")[0]


def inventory(directory: Path, spares: Sequence[tuple[Spare, str]]) -> Path:
    """The lab's contract; each spare host, given with its address, stands where its model stood."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "group_vars").mkdir(parents=True)
    (directory / "host_vars").mkdir()
    (directory / "group_vars/all").symlink_to(LAB / "group_vars/all")
    connection = yaml.safe_load((LAB / "group_vars/lab/connection.yml").read_text())
    connection = json.loads(json.dumps(connection).replace("{{ inventory_dir }}/../..", str(ROOT)))
    # The far ends of a spare host's links lead nowhere: there is no next hop to wait for.
    connection["sideband_host_wait_seconds"] = 0
    (directory / "group_vars/lab.yml").write_text(yaml.safe_dump(connection))
    renamed = {spare.like: spare.name for spare, _ in spares}
    hosts = yaml.safe_load((LAB / "hosts.yml").read_text())
    (directory / "hosts.yml").write_text(yaml.safe_dump(_renamed(hosts, renamed)))
    management = {spare.like: place for spare, place in spares}
    for path in (LAB / "host_vars").glob("*.yml"):
        variables = _renamed(yaml.safe_load(path.read_text()), renamed)
        if path.stem in management:
            place = management[path.stem]
            variables["ansible_host"] = place
            variables["sideband_addresses"]["management"] = {
                "ipv4": place,
                "ipv6": f"fd00:5b:90::{place.rsplit('.', 1)[1]}",
            }
        (directory / "host_vars" / f"{renamed.get(path.stem, path.stem)}.yml").write_text(
            yaml.safe_dump(variables)
        )
    return directory


def alone(inventory: Path, name: str) -> tuple[str, ...]:
    """Options of a play for one spare host. What its site keeps on the controller lies beside the
    inventory (in it, Ansible would read it as one), for the lab's own plays write theirs meanwhile."""
    kept = {
        "sideband_pki_directory": str(inventory.parent / "pki"),
        "sideband_rack_secrets_directory": str(inventory.parent / "secrets"),
        "sideband_contract_records": str(inventory.parent / "records"),
    }
    return "--limit", name, "-e", json.dumps(kept)


def _renamed(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """Hosts are keys of the inventory and `host` of a switch's port; a rack may be called like a host."""
    if isinstance(value, dict):
        return {names.get(name, name): _renamed(inner, names, name) for name, inner in value.items()}
    return names.get(value, value) if key == "host" else value


@contextmanager
def spare_site(directory: Path, spares: Sequence[Spare]) -> Iterator[Path]:
    """Bring spare hosts up, give them their links, and take them away at the end."""
    made: list[str] = []
    try:
        for spare in spares:
            subprocess.run(
                [str(ROOT / "lab/lab"), "spare", "down", spare.name], capture_output=True, check=False
            )
            lab("spare", "up", spare.name, "--suite", spare.suite)
            made.append(spare.name)
            for number, device in enumerate(devices(spare.like)):
                inside(
                    spare.name, "ip", "link", "add", device, "type", "veth", "peer", "name", f"far{number}"
                )
                # No address of its own: it is the wire, and nothing of the host.
                inside(spare.name, "ip", "link", "set", f"far{number}", "addrgenmode", "none", "up")
        yield inventory(directory, [(spare, address(spare.name)) for spare in spares])
    finally:
        for name in made:
            lab("spare", "down", name)
        shutil.rmtree(directory, ignore_errors=True)
