"""Case 8: facts are never injected as top-level variables, so nothing may read them there.

The site itself runs with injection off (ansible.cfg); here every `ansible_*` name that the bundle reads is
held against the names that are no facts: connection variables and Ansible's own magic ones."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_FACTS = {
    "ansible_become",
    "ansible_check_mode",
    "ansible_connection",
    "ansible_control_path",
    "ansible_diff_mode",
    "ansible_failed_result",
    "ansible_host",
    "ansible_limit",
    "ansible_play_hosts",
    "ansible_play_hosts_all",
    "ansible_playbook_python",
    "ansible_port",
    "ansible_python_interpreter",
    "ansible_run_tags",
    "ansible_ssh_common_args",
    "ansible_ssh_private_key_file",
    "ansible_user",
    "ansible_version",
}
SOURCES = sorted(
    path
    for folder in ("playbooks", "roles", "inventories")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".yml", ".j2"}
)


def names(text: str) -> set[str]:
    # A preceding dot is a key of a result, not a variable: `found.ansible_facts` is read from its own module.
    return set(re.findall(r"(?<![\w./-])ansible_[a-z0-9_]+", text)) - NO_FACTS


def unknown(path: Path) -> set[str]:
    return {name for name in names(path.read_text(encoding="utf-8")) if not name.startswith("ansible_ssh_")}


def test_injection_is_off() -> None:
    read = configparser.ConfigParser(interpolation=None)
    read.read(ROOT / "ansible.cfg")
    assert read["defaults"]["inject_facts_as_vars"] == "False"


def test_an_injected_fact_is_seen() -> None:
    assert names("when: ansible_distribution == 'Debian'") == {"ansible_distribution"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_reads_an_injected_fact(path: Path) -> None:
    assert unknown(path) == set()
