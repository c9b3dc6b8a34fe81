"""A random contract all the way to what its hosts would run: validated, compiled, rendered, and put before
the kernel and the daemons that would read it. Root, no lab."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import render_kit
from ansible.errors import AnsibleError
from contract_kit import Groups, HostVars
from contracts_kit import DEVICES, contracts, packets, served_flows
from frames_kit import Bench as Wires
from frames_kit import pid_name, run
from front.bench import Bench, make_root
from hypothesis import HealthCheck, Phase, given, settings
from sideband.check import check_site
from sideband.contract import compile_site
from sideband.load import gather
from sideband.model import parse_site
from sideband.semantics import verdict

# The roles that have daemons with configuration checks, and the flows that each serves.
SERVES = {"rack": ("push",), "region": ("relay",), "lake": ("store", "ask"), "gateway": ("query",)}


class Ground:
    """One root with the daemons, one namespace with the interfaces, one identity for everybody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bench = Bench(directory, make_root(directory))
        self.wires = Wires(pid_name("dep"), sorted(DEVICES.values()))
        self.identity = make_identity(directory)
        self.said: dict[str, str] = {}
        self.counts = {"contracts": 0, "rulesets": 0, "configurations": 0, "checks": 0, "packets": 0}

    def close(self) -> None:
        self.wires.close()

    def faults(self, hostvars: HostVars, groups: Groups, sent: int = 0) -> list[str]:
        """Everything that is wrong with one contract, in words."""
        self.counts["contracts"] += 1
        found = [f"validate: {error}" for error in check_site(hostvars, groups)]
        if found:
            return found
        model = compile_site(hostvars, groups)
        found += self._rules(model)
        for word in SERVES:
            # The last host of each: the first ones of two differ in their addresses only.
            host = [name for name, part in model["hosts"].items() if word in part["words"]][-1]
            found += self._daemons(word, host, model)
        return found + (self._packets(hostvars, groups, model, sent) if sent else [])

    def _rules(self, model: dict[str, Any]) -> list[str]:
        """All hosts' files in one transaction: each begins by taking its own table away."""
        texts = [host["ruleset"] for host in model["hosts"].values() if host["ruleset"]]
        self.counts["rulesets"] += len(texts)
        done = run("nft", "-c", "-f", "-", text="\n".join(texts), namespace=self.wires.host)
        return [f"nft: {done.stderr.strip()}"] if done.returncode or done.stderr else []

    def _daemons(self, word: str, host: str, model: dict[str, Any]) -> list[str]:
        own = {**model, "hosts": {host: model["hosts"][host]}}
        try:
            content = render_kit.fragment(word, own, host, self.identity, self.directory)
        except AnsibleError as reason:
            return [f"{host}: does not render: {reason}"]
        self.bench.lay_out(content)
        found = []
        for item in content["fragment"]["files"]:
            if item.get("check"):
                self.counts["configurations"] += 1
                said = self._check(item)
                found += [f"{host} {item['path']}: {said}"] if said else []
        text = next(f["content"] for f in content["fragment"]["files"] if f["path"].endswith("haproxy.cfg"))
        return found + meaning(word, host, model, text)

    def _check(self, item: dict[str, Any]) -> str:
        """By the daemon itself, once for each different file."""
        key = hashlib.sha256(f"{item['path']}\0{item['content']}".encode()).hexdigest()
        if key not in self.said:
            self.counts["checks"] += 1
            words = shlex.split(item["check"].replace("%s", item["path"]))
            done = subprocess.run(["chroot", str(self.bench.root), *words], capture_output=True, text=True)
            self.said[key] = "" if done.returncode == 0 else f"{done.returncode}: {done.stdout}{done.stderr}"
        return self.said[key]

    def _packets(self, hostvars: HostVars, groups: Groups, model: dict[str, Any], count: int) -> list[str]:
        """One host's rules in the kernel, packet by packet, against what the contract says of each."""
        inventory = gather(hostvars, groups)
        site = parse_site(inventory.nouns, inventory.hosts)
        names = sorted(site.hosts)
        name = names[self.counts["contracts"] % len(names)]
        host, self.counts["packets"] = site.hosts[name], self.counts["packets"] + count
        sent = packets(site, host, count, self.counts["contracts"])
        self.wires.load(model["hosts"][name]["ruleset"])
        entered, _ = self.wires.send(sent)
        return [
            f"{name} {device} {packet}: kernel {did}"
            for (device, packet), did in zip(sent, entered)
            if verdict(site, host, device, packet).enters != did
        ]


def meaning(word: str, host: str, model: dict[str, Any], configuration: str) -> list[str]:
    """A front listens on what its flows say, and nowhere else but on its own loopback."""
    served = [model["hosts"][host]["serves"][flow] for flow in SERVES[word]]
    want = {one[key] for one in served for key in ("listen4", "listen6") if one[key]}
    bound = set(re.findall(r"(?m)^\s+bind (\S+)", configuration))
    got = {address for address in bound if not address.startswith(("127.0.0.1:", "unix@", "/"))}
    return [] if got == want else [f"{host}: listens on {sorted(got)}, the contract says {sorted(want)}"]


def make_identity(directory: Path) -> dict[str, str]:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=any"],
        check=True, capture_output=True,
    )  # fmt: skip
    text = certificate.read_text(encoding="ascii")
    return {"ca": text, "certificate": text, "key": key.read_text(encoding="ascii")}


def each(count: int, look: Callable[[HostVars, Groups], None]) -> None:
    """`look` at so many random contracts that roles can be rendered for; always the same ones."""
    numbers = itertools.count(1)

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(contracts())
    def every(contract: tuple[HostVars, Groups]) -> None:
        hostvars, groups = contract
        flows = served_flows(next(numbers))
        look({name: {**own, "sideband_flows": flows} for name, own in hostvars.items()}, groups)

    every()
