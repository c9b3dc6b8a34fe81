"""playbooks/ring.yml, printed from playbooks/site.yml: the site's own layers, for the hosts of one step.

A rollout must do what site.yml does and nothing else, so its plays are not written a second time by hand.
Each play gets two things more: its hosts are cut down to the step's, and a stand-in joins them. The stand-in
steps aside at once; it is there because Ansible ends the whole run when every host of a play has failed, and
with a canary of one host nobody would be left to name the cause and take it back (case 13). The controller's
own phases run on it too."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import yaml

STAND_IN = "sideband_stand_in"
# `none` is for a reader that opens ring.yml alone: no such group, so no play of it does anything.
STEP = "{{ sideband_rollout_step | default('none') }}"
TURN = f"sideband_turn_{STEP}"
# What belongs to the whole site and was done before the first ring.
ONCE = ("contract.yml", "preflight.yml", "record.yml")
HEAD = """---
# Printed by tools/rings from site.yml; change that, then run tools/rings again.
# One step of a rollout: enter, look, change, soak, judge, and take back what failed.
"""
STAND_ASIDE = {
    "name": "Let the stand-in step aside",
    "ansible.builtin.meta": "end_host",
    "when": f"inventory_hostname == '{STAND_IN}'",
}

Play = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _role(phase: str) -> Play:
    return {
        "name": phase.capitalize(),
        "ansible.builtin.import_role": {"name": "rollout", "tasks_from": phase},
    }


def _on_controller(title: str, phase: str, hosts: str = f"{STAND_IN}:&{TURN}") -> Play:
    return {
        "name": f"{title} {STEP}",
        "hosts": hosts.split(":"),
        "gather_facts": False,
        "tasks": [_role(phase)],
    }


def _on_hosts(title: str, phase: str) -> Play:
    return {
        "name": f"{title} {STEP}",
        "hosts": TURN,
        "gather_facts": False,
        "pre_tasks": [dict(STAND_ASIDE)],
        "tasks": [_role(phase)],
    }


def _probes() -> Play:
    """The far ends of the probes are all over the site, so this play has every host of it."""
    return {
        "name": f"Probe the planes around {STEP}",
        "hosts": f"sideband_probed_{STEP}",
        "gather_facts": False,
        "vars": {
            "sideband_verify_only": "{{ hostvars['sideband_stand_in'].sideband_rollout_hosts | join(',') }}",
            # Hosts outside the contract, and what is counted from wiring, belong to the whole site's proof.
            "sideband_verify_outside": [],
            "sideband_verify_topology": "",
            "sideband_verify_reports": "{{ playbook_dir }}/../.sideband/{{ sideband_site }}/probes",
        },
        "tasks": [_role("probe")],
    }


def layer_play(play: Play) -> Play:
    """A play of the site, for the hosts of the step."""
    made = copy.deepcopy(play)
    hosts = made["hosts"]
    parts = list(hosts) if isinstance(hosts, list) else str(hosts).split(":")
    # A step that is not live has no such group, so nothing matches and the play costs nothing.
    made["hosts"] = [*parts, STAND_IN, f"&{TURN}"]
    made["name"] = f"{made['name']} in {STEP}"
    made["pre_tasks"] = [dict(STAND_ASIDE), *made.get("pre_tasks", [])]
    order = ("name", "hosts", "gather_facts")
    rest = {key: value for key, value in made.items() if key not in (*order, "pre_tasks", "roles", "tasks")}
    body: Play = {key: made[key] for key in ("pre_tasks", "roles", "tasks") if key in made}
    first: Play = {key: made[key] for key in order if key in made}
    whole: Play = {}
    for part in (first, rest, body):
        whole.update(part)
    return whole


def layers(directory: Path) -> list[Play]:
    site = yaml.safe_load((directory / "site.yml").read_text(encoding="utf-8"))
    files = [entry["ansible.builtin.import_playbook"] for entry in site]
    found: list[Play] = []
    for file in files:
        if file not in ONCE:
            found += yaml.safe_load((directory / file).read_text(encoding="utf-8"))
    return found


def render(directory: Path) -> str:
    plays = [
        _on_controller("Enter", "enter", "localhost"),
        _on_hosts("Look at the hosts before", "before"),
        _on_controller("Note what stands before", "note"),
        *(layer_play(play) for play in layers(directory)),
        _on_hosts("Look at the hosts after", "after"),
        # Failed and lost hosts come back into the run here: they have to be looked at and taken back.
        {
            "name": f"Count in again the lost of {STEP}",
            "hosts": TURN,
            "gather_facts": False,
            "tasks": [{"name": "Forget their errors", "ansible.builtin.meta": "clear_host_errors"}],
        },
        _on_controller("Soak", "soak"),
        _on_hosts("Look at the hosts after the soak of", "soaked"),
        _probes(),
        _on_controller("Judge", "judge"),
        _on_hosts("Take back what failed in", "back"),
        _on_controller("Close", "close"),
    ]
    text = "\n".join(yaml.dump([play], Dumper=_Dumper, sort_keys=False, width=200) for play in plays)
    return HEAD + text


def main(arguments: list[str]) -> int:
    directory = Path(__file__).resolve().parent.parent.parent / "playbooks"
    path, text = directory / "ring.yml", render(directory)
    fresh = path.is_file() and path.read_text(encoding="utf-8") == text
    if "--check" in arguments:
        print("playbooks/ring.yml is fresh" if fresh else "playbooks/ring.yml is stale; run tools/rings")
        return 0 if fresh else 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
