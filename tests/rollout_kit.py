"""A fleet in a directory: the real plays of a rollout, over hosts that are one JSON file each.

What is real: playbooks/rollout.yml and canary.yml, what prints ring.yml, role rollout, ledger and filters.
What is played: the layer that is rolled out, and the two modules that look at and change a host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from sideband.ring_plays import render
from sideband.rings import BATCHES
from sideband.rollout import parse

ROOT = Path(__file__).resolve().parent.parent

HOST_STATE = """#!/usr/bin/python
import json, os, time
from ansible.module_utils.basic import AnsibleModule

def main():
    spec = {name: {"type": "str", "default": ""} for name in ("owner", "state", "content")}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    given, path = module.params, os.environ["TOY_HOST"]
    host = json.load(open(path))
    was = host["owners"].get(given["owner"])
    now = dict(was) if was else {"number": 0, "content": None, "previous": None, "pending": False}
    if given["state"] == "absent":
        now = None
    elif given["state"] == "reverted":
        if was["pending"]:
            now.update(pending=False, disk=was["content"])
        elif was["previous"]:
            now = dict(was["previous"], previous=None)
    elif given["content"] != now["content"] or now["pending"]:
        fault = given["content"].partition(":")[2]
        now.update(disk=given["content"], pending=True)
        if not module.check_mode:
            host["owners"][given["owner"]] = now
            json.dump(host, open(path, "w"))
        if "fails" in fault and not module.check_mode:
            module.fail_json(msg="the toy fails")
        # A module outlives its killed controller; this one ends when the test says so.
        for _ in range(600 if "hangs" in fault and not module.check_mode else 0):
            time.sleep(0.1)
            if os.path.exists(path + ".stop"):
                module.fail_json(msg="stopped")
        if given["content"] != (was or {}).get("content"):
            now = {"number": now["number"] + 1, "content": given["content"], "disk": given["content"],
                   "previous": was and {k: v for k, v in was.items() if k != "previous"}}
        now["pending"] = False
    host["owners"][given["owner"]] = now
    if now is None:
        del host["owners"][given["owner"]]
    if not module.check_mode:
        json.dump(host, open(path, "w"))
    module.exit_json(changed=now != was)

main()
"""
HOST_VITALS = """#!/usr/bin/python
import json, os, time
from ansible.module_utils.basic import AnsibleModule

def main():
    module = AnsibleModule(argument_spec={"connects": {"type": "list"}}, supports_check_mode=True)
    host = json.load(open(os.environ["TOY_HOST"]))
    disk = {owner: one.get("disk") or one["content"] for owner, one in host["owners"].items()}
    module.exit_json(changed=False, vitals={
        "at": time.monotonic(), "boot": "1", "units": {}, "counters": {}, "queues": {}, "agents": {},
        "cpu_seconds": 0.0, "memory_bytes": 0, "rules": {}, "shapes": {}, "unanswered": {},
        "listeners": ["tcp 0.0.0.0:9 by sideband-toy.service"] if "listens" in str(disk) else [],
        "files": {owner: str(content) for owner, content in disk.items()},
        "generations": {owner: {"number": one["number"], "pending": one["pending"],
            "previous": one["previous"]["number"] if one["previous"] else None}
            for owner, one in host["owners"].items()},
    })

main()
"""


class Fleet:
    """`hosts`: name -> ring ("" is the fleet)."""

    UNUSED = tuple(f"fleet_{number}" for number in range(5, BATCHES + 1))

    def __init__(
        self, directory: Path, hosts: Mapping[str, str], rollout: Mapping[str, Any] | None = None
    ) -> None:
        self.directory, self.hosts = directory, hosts
        self.rollout = parse({"soak": "1s", "batch": "100%", "probes": False, **(rollout or {})})
        for folder in (
            "playbooks",
            "library",
            "roles/host/tasks",
            "roles/layer/tasks",
            "roles/contract/tasks",
            "hosts",
            "bin",
            "inventory",
        ):
            (directory / folder).mkdir(parents=True)
        shutil.copy(ROOT / "playbooks/canary.yml", directory / "playbooks")
        # Without the imports of steps that no toy has: each costs a second of parsing.
        whole = yaml.safe_load((ROOT / "playbooks/rollout.yml").read_text())
        few = [
            play for play in whole if play.get("vars", {}).get("sideband_rollout_step", "") not in self.UNUSED
        ]
        (directory / "playbooks/rollout.yml").write_text(yaml.safe_dump(few, sort_keys=False))
        (directory / "library/host_state.py").write_text(HOST_STATE)
        (directory / "library/host_vitals.py").write_text(HOST_VITALS)
        (directory / "filter_plugins").mkdir()
        for file in ("library/rollout_ledger.py", "filter_plugins/rollout.py"):
            shutil.copy(ROOT / file, directory / file)
        for folder in ("roles/rollout", "module_utils"):
            shutil.copytree(ROOT / folder, directory / folder, ignore=shutil.ignore_patterns("__pycache__"))
        self._plays()
        for name in hosts:
            (directory / f"hosts/{name}").write_text(
                '{"owners": {"layer": {"number": 1, "content": "v1", '
                '"disk": "v1", "previous": null, "pending": false}}}'
            )
            wrapper = directory / f"bin/{name}"
            wrapper.write_text(f'#!/bin/sh\nTOY_HOST={directory}/hosts/{name} exec {sys.executable} "$@"\n')
            wrapper.chmod(0o755)
        self.unreachable: set[str] = set()
        self.release("v1")

    def _plays(self) -> None:
        plays = self.directory / "playbooks"
        model = "{{ lookup('ansible.builtin.file', playbook_dir ~ '/model.json') | from_json }}"
        task = {"ansible.builtin.set_fact": {"sideband_model": model}}
        self_fact = {
            "ansible.builtin.set_fact": {"sideband_self": "{{ sideband_model.hosts[inventory_hostname] }}"}
        }
        play = {"name": "Contract", "hosts": "sideband", "gather_facts": False, "tasks": [task, self_fact]}
        (plays / "contract.yml").write_text(yaml.safe_dump([play]))
        (plays / "preflight.yml").write_text(
            yaml.safe_dump([{"hosts": "sideband", "gather_facts": False, "tasks": []}])
        )
        layer = [{"name": "Layer", "hosts": "sideband", "gather_facts": False, "roles": ["layer"]}]
        (plays / "layer.yml").write_text(yaml.safe_dump(layer))
        imports = [{"ansible.builtin.import_playbook": name} for name in ("contract.yml", "layer.yml")]
        (plays / "site.yml").write_text(yaml.safe_dump(imports))
        (plays / "ring.yml").write_text(render(plays))
        host = [{"host_state": {"owner": "{{ sideband_host_owner }}", "state": "{{ sideband_host_state }}"}}]
        (self.directory / "roles/host/tasks/main.yml").write_text(yaml.safe_dump(host))
        record = {
            "content": "{{ sideband_model.digest }}",
            "dest": f"{self.directory}/record",
            "mode": "0644",
        }
        write = {"ansible.builtin.copy": record, "when": "__contract_whole and not ansible_check_mode"}
        (self.directory / "roles/contract/tasks/record.yml").write_text(yaml.safe_dump([write]))
        content = "{{ sideband_model.content[inventory_hostname] }}"
        change = [{"host_state": {"owner": "layer", "content": content}}]
        (self.directory / "roles/layer/tasks/main.yml").write_text(yaml.safe_dump(change))
        config = "".join(f"{n} = {n}\n" for n in ("library", "module_utils", "filter_plugins"))
        more = "roles_path = roles\ngathering = explicit\ninject_facts_as_vars = False\nforks = 10\n"
        ssh = "[ssh_connection]\npipelining = True\n"
        (self.directory / "ansible.cfg").write_text(
            f"[defaults]\n{config}{more}local_tmp = {self.directory}/tmp\n{ssh}"
        )

    def release(self, content: str, faults: Mapping[str, str] | None = None) -> None:
        """Every host is to hold `content`; a host with a fault holds `content:fault`."""
        wanted = {
            name: f"{content}:{(faults or {})[name]}" if name in (faults or {}) else content
            for name in self.hosts
        }
        part = {"rack": "", "words": ["rack"], "serves": {}, "reaches": {}, "interfaces": {}, "counters": []}
        ladder = {"order": ["full"], "levels": {"full": {"period_seconds": 0, "metrics": []}}}
        model = {"site": "toy", "digest": json.dumps(wanted), "content": wanted, "rollout": self.rollout,
                 "ladder": ladder, "hosts": dict.fromkeys(self.hosts, part)}  # fmt: skip
        (self.directory / "playbooks/model.json").write_text(json.dumps(model))

    def run(self, play: str = "rollout", *options: str, wait: bool = True) -> subprocess.Popen[str]:
        variables: dict[str, Any] = {}
        for name in self.hosts:
            variables[name] = {
                "ansible_connection": "local",
                "ansible_python_interpreter": f"{self.directory}/bin/{name}",
            }
            if name in self.unreachable:
                variables[name] = {
                    "ansible_connection": "ssh",
                    "ansible_host": "127.0.0.1",
                    "ansible_port": 9,
                }
        rings: dict[str, Any] = {}
        for name, ring in self.hosts.items():
            if ring:
                rings.setdefault(f"sideband_ring_{ring}", {"hosts": {}})["hosts"][name] = {}
        inventory = {
            "all": {"vars": {"sideband_site": "toy"}, "children": {"sideband": {"hosts": variables}, **rings}}
        }
        (self.directory / "inventory/hosts.yml").write_text(yaml.safe_dump(inventory))
        argv = ["ansible-playbook", "-i", "inventory/hosts.yml", f"playbooks/{play}.yml", *options]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": f"{self.directory}/ansible.cfg",
            "ANSIBLE_NOCOLOR": "1",
        }
        with (self.directory / "log").open("w") as log:
            process = subprocess.Popen(
                argv, cwd=self.directory, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        if wait:
            try:
                process.wait(timeout=240)
            except subprocess.TimeoutExpired:
                self.end(process)
                raise
        return process

    def kill_when(self, process: subprocess.Popen[str], host: str, disk: str) -> None:
        """Kill the controller at the moment when a host is half changed."""
        deadline = time.monotonic() + 100
        while self.state(host).get("disk") != disk and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.state(host).get("disk") != disk:
            self.end(process)
            raise AssertionError(self.log)
        self.end(process)
        stop = self.directory / f"hosts/{host}.stop"
        stop.touch()
        time.sleep(1)
        stop.unlink()

    @staticmethod
    def end(process: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def recorded(self) -> str:
        """What the controller's record says is in force; "" where there is none."""
        path = self.directory / "record"
        return path.read_text() if path.exists() else ""

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def state(self, host: str) -> dict[str, Any]:
        try:
            owners = json.loads((self.directory / f"hosts/{host}").read_text())["owners"]
        except ValueError:
            return {}  # being written
        return dict(owners.get("layer", {}))

    def contents(self) -> dict[str, str]:
        return {name: self.state(name)["disk"] for name in self.hosts}

    @property
    def ledger(self) -> dict[str, Any]:
        data = json.loads((self.directory / ".sideband/toy/rollout.json").read_text())
        return {entry["name"]: entry for entry in data["steps"]}

    def states(self) -> dict[str, str]:
        return {name: entry["state"] for name, entry in self.ledger.items()}
