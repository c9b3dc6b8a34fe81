"""contract.yml and validate.yml as they are run: on the controller alone, limited or not (cases 2, 7, 10)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from contract_kit import LAB, ROOT

# One file from the controller; no host is contacted.
DUMP = """
- hosts: sideband:sideband_fabric
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ dict(ansible_play_hosts | zip(facts)) | to_json }}"
        dest: "{{ lookup('ansible.builtin.env', 'DUMP') }}"
        mode: "0600"
      run_once: true
      delegate_to: localhost
      vars:
        ansible_connection: local
        ansible_python_interpreter: "{{ ansible_playbook_python }}"
        models: "{{ ansible_play_hosts | map('extract', hostvars, 'sideband_model') }}"
        selves: "{{ ansible_play_hosts | map('extract', hostvars, 'sideband_self') }}"
        facts: "{{ models | zip(selves) }}"
"""


def play(*args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    program = ROOT / ".venv" / "bin" / "ansible-playbook"
    settings = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **env}
    return subprocess.run(
        [str(program), *map(str, args)],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    copied = tmp_path / "site"
    shutil.copytree(LAB, copied)
    return copied


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def dump(tmp_path: Path, *args: str) -> dict[str, list[dict[str, object]]]:
    """{host: [sideband_model, sideband_self]}"""
    place, book = tmp_path / "dumped", tmp_path / "dump.yml"
    book.write_text(DUMP, encoding="utf-8")
    done = play(ROOT / "playbooks" / "contract.yml", book, *args, DUMP=str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    dumped: dict[str, list[dict[str, object]]] = json.loads(place.read_text(encoding="utf-8"))
    return dumped


def test_a_limit_changes_nothing_in_the_model(tmp_path: Path) -> None:
    """Case 2: a host alone gets the model of the full run."""
    full = dump(tmp_path)
    assert len(full) == 10
    for host, (model, own) in full.items():
        assert own == model["hosts"][host]  # type: ignore[index]
    assert dump(tmp_path, "--limit", "node3") == {"node3": full["node3"]}


@pytest.mark.parametrize("args", [[], ["--limit", "node2"]])
def test_validate_prints_the_plan_whatever_the_limit(args: list[str]) -> None:
    done = play("playbooks/validate.yml", *args)
    assert done.returncode == 0, done.stdout
    assert "The contract of lab holds: 10 hosts" in done.stdout
    assert "limit at the rack" in done.stdout


def test_validate_of_a_host_that_is_not_there_fails() -> None:
    assert play("playbooks/validate.yml", "--limit", "node9").returncode != 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rollback.yml", "-e", "level=core"], "hint: -e scope=rack:NAME"),
        (["restore.yml"], "hint: -e scope=rack:NAME"),
        (["rollout.yml"], "--limit is not for rollouts (got rack1)"),
        (["canary.yml"], "--limit is not for rollouts (got rack1)"),
    ],
)
def test_a_verb_does_not_end_well_where_a_limit_leaves_nothing_to_do(words: list[str], said: str) -> None:
    """Without signer and witness, or without the controller, every play would be skipped, with rc 0."""
    done = play(f"playbooks/{words[0]}", *words[1:], "--limit", "rack1")
    assert done.returncode != 0
    assert said in " ".join(done.stdout.split())
    assert "Compile the contract" not in done.stdout


def test_validate_says_every_fault_on_a_line_of_its_own(inventory: Path) -> None:
    """All rings at once, a value that YAML changed on the way in among them; no fault hides another."""
    edit(inventory / "group_vars/all/planes.yml", "vlan: 40", "vlan: 050")
    edit(inventory / "group_vars/all/tiers.yml", "cap: 4GiB", 'cap: "{{ nowhere }}"')
    edit(inventory / "host_vars/node1.yml", "edge: {", "edge: {mac: 52:54:00:12:34:56, ")
    edit(
        inventory / "host_vars/node2.yml", "sideband_rack: rack1", "sideband_rack: rack9\nsideband_rak: rack1"
    )
    done = play("-i", inventory, "playbooks/validate.yml")
    assert done.returncode == 2
    lines = (done.stdout + done.stderr).splitlines()
    for line in (
        "  all: sideband_planes.query.vlan: reads as an octal number (got 050, which is 40); "
        "write it without the leading zero, or 40 if that is meant",
        "  all: sideband_tiers: cannot be resolved; 'nowhere' is undefined",
        "  node2: sideband_rak: unknown variable; did you mean 'sideband_rack'?",
    ):
        assert line in lines
    assert any(
        line.startswith("  node1: sideband_addresses.edge.mac: must be a MAC address in text (got 4")
        for line in lines
    )


def test_what_cannot_be_resolved_is_no_secret_and_said_once(inventory: Path) -> None:
    """An undefined variable answers to any attribute, so it looked like a vaulted value, on every host."""
    edit(inventory / "group_vars/all/site.yml", "lab", "'{{ nowhere }}'")
    edit(inventory / "group_vars/all/mirror.yml", "10.90.0.61:", "{{ nobody }}:")
    edit(inventory / "group_vars/all/mirror.yml", "_port: 8080", "_port: '{{ nothing }}'")
    done = play("-i", inventory, "playbooks/validate.yml")
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 2
    assert "  all: sideband_site: cannot be resolved; 'nowhere' is undefined" in lines
    assert "  all: sideband_mirror_url: cannot be resolved; 'nobody' is undefined" in lines
    assert "  all: sideband_mirror_port: cannot be resolved; 'nothing' is undefined" in lines
    assert not any("vaulted" in line for line in lines)


def test_a_noun_in_two_files_and_a_file_that_is_no_yaml_are_named(inventory: Path) -> None:
    (inventory / "group_vars/all/a.yml").write_text("sideband_site: other\n", encoding="utf-8")
    done = play("-i", inventory, "playbooks/validate.yml")
    assert done.returncode == 2
    assert "all: sideband_site: stands in two files, group_vars/all/a.yml and" in done.stdout + done.stderr
    (inventory / "group_vars/all/a.yml").write_text("a: {b\n", encoding="utf-8")
    done = play("-i", inventory, "playbooks/validate.yml")
    assert done.returncode != 0
    assert "all: group_vars/all/a.yml:2:1: is no YAML: " in done.stdout + done.stderr


def test_a_vaulted_value_is_refused_with_its_password_at_hand(inventory: Path, tmp_path: Path) -> None:
    """Case 10: the value would resolve, and go wherever the contract goes."""
    secret = tmp_path / "password"
    secret.write_text("opensesame\n", encoding="utf-8")
    vault = ROOT / ".venv" / "bin" / "ansible-vault"
    sealed = subprocess.run(
        [str(vault), "encrypt_string", "--vault-password-file", str(secret), "hushhush"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (inventory / "group_vars/all/tenants.yml").write_text(
        "sideband_tenants:\n  - name: alpha\n    racks: [rack1]\n    certificate: "
        + sealed.replace("\n", "\n      ")
        + "\n",
        encoding="utf-8",
    )
    done = play("-i", inventory, "playbooks/validate.yml", "--vault-password-file", str(secret))
    text = done.stdout + done.stderr
    assert done.returncode == 2
    assert "sideband_tenants[alpha].certificate: is a vaulted value; the contract holds no secrets" in text
    assert "hushhush" not in text
    assert "ANSIBLE_VAULT" not in text


@pytest.mark.parametrize("value", ["{}", "[]"])
def test_an_odd_value_stops_with_a_reason_and_never_by_its_truth(value: str) -> None:
    """Case 7: core 2.19 stops on conditions that yield a list, a mapping or text."""
    done = play("playbooks/contract.yml", "-e", f'{{"sideband_administrators": {value}}}')
    text = done.stdout + done.stderr
    assert "Conditional" not in text
    if value == "[]":
        assert done.returncode == 0, text
    else:
        assert "all: sideband_administrators: must be a list" in text


@pytest.mark.parametrize(
    ("book", "host", "lacking", "before"),
    [
        ("rack", "rack1", "sideband_identities", "contract pki policy"),
        ("lake", "lake1", "sideband_identities", "contract pki policy"),
        ("node", "node1", "sideband_identities, sideband_policy_allowed_signers", "contract pki policy"),
        ("planes", "rack1", "sideband_self", "contract pki policy"),
    ],
)
def test_a_play_run_alone_names_what_it_lacks_and_which_plays_leave_it(
    inventory: Path, book: str, host: str, lacking: str, before: str
) -> None:
    books = (
        [f"playbooks/{book}.yml"] if book == "planes" else ["playbooks/contract.yml", f"playbooks/{book}.yml"]
    )
    done = play("-i", inventory, *books, "--limit", host)
    assert done.returncode != 0
    plays = " ".join(f"playbooks/{name}.yml" for name in (*before.split(), book))
    said = f"{host}: {book} needs what other plays leave (lacking: {lacking}); next: ansible-playbook {plays}"
    assert said in " ".join(done.stdout.split())


def test_a_noun_that_differs_by_host_is_said_however_alike_it_is_spelt(inventory: Path) -> None:
    """A template of one spelling comes to another value on each host."""
    edit(inventory / "group_vars/all/site.yml", "lab", "'{{ inventory_hostname }}'")
    edit(
        inventory / "group_vars/all/tiers.yml", "retention: 7d",
        "retention: \"{{ '9d' if inventory_hostname == 'lake1' else '7d' }}\"",
    )  # fmt: skip
    done = play("-i", inventory, "playbooks/contract.yml")
    lines = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 2
    assert any(line.startswith("  all: sideband_site: differs from host to host; ") for line in lines)
    assert any(
        line.startswith("  lake1: sideband_tiers: differs from the other hosts' value") for line in lines
    )


def test_a_way_in_that_cannot_be_resolved_or_is_none(inventory: Path) -> None:
    edit(inventory / "host_vars/node1.yml", "ansible_host: 10.90.0.11", "ansible_host: '{{ nope }}'")
    edit(inventory / "host_vars/node2.yml", "ansible_host", "ansible_port: ssh\nansible_host")
    edit(inventory / "group_vars/all/pki.yml", "sideband_site }}", "sideband_sit }}")
    done = play("-i", inventory, "playbooks/validate.yml")
    lines = (done.stdout + done.stderr).splitlines()
    assert "  node1: ansible_host: cannot be resolved; 'nope' is undefined" in lines
    assert "  node2: ansible_port: must be a port, 1 to 65535 (got 'ssh'); for example 22" in lines
    assert "  all: sideband_pki_directory: cannot be resolved; 'sideband_sit' is undefined" in lines


@pytest.mark.parametrize("args", [["-i", "node1,node2"], ["-i", "inventories/lab/rings.yml"]])
def test_nothing_to_check_does_not_end_well(args: list[str]) -> None:
    done = play(*args, "playbooks/contract.yml")
    assert done.returncode == 2
    assert "all: groups.sideband: has no hosts; " in done.stdout


@pytest.mark.parametrize(
    "extra", ['{"__contract_errors": []}', '{"sideband_model": {}}', '{"sideband_deployed": "x"}']
)
def test_extra_variables_do_not_stand_in_for_results(inventory: Path, extra: str) -> None:
    edit(inventory / "group_vars/all/planes.yml", "vlan: 40", "vlan: 0")
    done = play("-i", inventory, "playbooks/contract.yml", "-e", extra)
    assert done.returncode == 2
    assert ": is set by plays while they run; leave it out of -e" in done.stdout


def test_names_of_groups_and_filters_are_no_variables(inventory: Path) -> None:
    text = "sideband_node: {cpu: 5}\nsideband_errors: []\nsideband_ring_canary: [x]\n"
    (inventory / "group_vars/all/x.yml").write_text(text, encoding="utf-8")
    done = play("-i", inventory, "playbooks/contract.yml")
    assert done.returncode == 2
    for name in ("node", "errors", "ring_canary"):
        assert f"  all: sideband_{name}: unknown variable; " in done.stdout + done.stderr


@pytest.mark.parametrize("text", ["sideband_components:\n", "sideband_components: 5\n", "---\n"])
def test_one_machine_whose_parts_are_no_list(tmp_path: Path, text: str) -> None:
    site = tmp_path / "site"
    shutil.copytree(ROOT / "inventories/single", site)
    (site / "group_vars/all/components.yml").write_text(text, encoding="utf-8")
    done = play("-i", site, "playbooks/contract.yml")
    assert done.returncode == 2
    assert "all: sideband_components: " in done.stdout
    assert "a list: [node, rack, region, lake, gateway, alerts]" in done.stdout
