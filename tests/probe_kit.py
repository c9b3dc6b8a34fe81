"""A site in network namespaces: every host of the lab's inventory as a namespace, every segment as a bridge
of its own, the compiled rules loaded by the real nft. Probed by the code that runs on real hosts, without
Ansible, a switch or systemd in between."""

from __future__ import annotations

import copy
import itertools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from sideband import verify_plan
from sideband.contract import compile_site
from sideband.verify_checks import Verdict, judge
from sideband.verify_pairs import Options, Plan
from sideband.verify_request import request
from verify_kit import right

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / "inventories" / "lab"
DESK = {"name": "user1", "plane": "query", "device": "query0"}
DESK_ADDRESSES = ("10.40.0.71/24", "fd00:5b:40::71/64")

SERVICES = """
    import json, selectors, socket, sys
    wanted = json.load(sys.stdin)
    selector = selectors.DefaultSelector()
    for address, port in wanted:
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(64)
        selector.register(sock, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            key.fileobj.accept()[0].close()
"""
VISIT = """
    import json, sys
    from sideband import probe
    phase, run, request, directory = json.load(sys.stdin)
    print(json.dumps(probe.visit(phase, run, request, directory)))
"""


def inventory() -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """(hostvars, groups) of the lab, read without Ansible."""
    common: dict[str, Any] = {}
    for path in sorted((INVENTORY / "group_vars" / "all").glob("*.yml")):
        common.update(yaml.safe_load(path.read_text()) or {})
    groups: dict[str, list[str]] = {}

    def walk(name: str, body: Mapping[str, Any] | None) -> list[str]:
        hosts = list((body or {}).get("hosts") or {})
        for child, part in ((body or {}).get("children") or {}).items():
            hosts += walk(child, part)
        groups.setdefault(name, []).extend(host for host in hosts if host not in groups[name])
        return hosts

    for name, body in yaml.safe_load((INVENTORY / "hosts.yml").read_text()).items():
        walk(name, body)
    hosts = list(dict.fromkeys(groups["all"]))
    own = {host: yaml.safe_load((INVENTORY / "host_vars" / f"{host}.yml").read_text()) for host in hosts}
    return {
        host: copy.deepcopy({**common, **own[host], "inventory_hostname": host}) for host in hosts
    }, groups


def lab_model(
    change: Callable[[dict[str, dict[str, Any]]], None] | None = None, hosts: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The lab's compiled model; of these hosts only, if named."""
    hostvars, groups = inventory()
    if hosts:
        groups = {name: [host for host in mine if host in hosts] for name, mine in groups.items()}
        for ports in (part.get("sideband_fabric_ports", {}) for part in hostvars.values()):
            for port in [port for port, end in ports.items() if end["host"] not in (*hosts, DESK["name"])]:
                del ports[port]
    if change:
        change(hostvars)
    model: dict[str, Any] = compile_site(hostvars, groups)
    return model


def lab_options(**changes: Any) -> Options:
    return Options(**{"training": True, "outside": (DESK,), **changes})


SITES = itertools.count()


class Site:
    """Namespaces up, rules loaded, services answering; `close` leaves nothing."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self.model = model
        self.stem = f"sbv{os.getpid()}x{next(SITES)}"
        self.directory = tempfile.TemporaryDirectory(prefix=self.stem)
        self.hosts = {name: host for name, host in model["hosts"].items() if host["interfaces"]}
        self.services: list[subprocess.Popen[str]] = []
        self.names = [*self.hosts, DESK["name"]]
        try:
            self._wire()
            for name in self.hosts:
                self.load(name, self.hosts[name]["ruleset"])
            self._serve()
        except BaseException:
            self.close()
            raise

    def space(self, name: str) -> str:
        return f"{self.stem}-{name}"

    def run(self, name: str, *words: str, text: str = "") -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", self.space(name), *words],
            input=text, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "module_utils")},
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {' '.join(words)[:200]}: {done.stderr}"
        return done.stdout

    def load(self, name: str, ruleset: str) -> None:
        self.run(name, "nft", "-f", "-", text=ruleset)

    def _wire(self) -> None:
        segments: dict[tuple[str, int], str] = {}
        spaces = [self.space(name) for name in [*self.names, "switch"]]
        batch = []
        inner: dict[str, list[str]] = {name: ["link set lo up"] for name in self.names}
        ends = [
            (name, plane, part, (part["cidr4"], part["cidr6"]))
            for name, host in self.hosts.items()
            for plane, part in host["interfaces"].items()
        ]
        query = next(part for _, plane, part, _ in ends if plane == DESK["plane"])
        ends.append((DESK["name"], DESK["plane"], {**query, "device": DESK["device"]}, DESK_ADDRESSES))
        for number, (name, plane, part, cidrs) in enumerate(ends):
            key = (plane, part["vlan"])
            if key not in segments:
                segments[key] = f"br{len(segments)}"
                batch += [f"link add {segments[key]} type bridge", f"link set {segments[key]} up"]
            batch += [
                f"link add p{number} type veth peer name {part['device']} netns {self.space(name)}",
                f"link set p{number} master {segments[key]} up",
            ]
            inner[name] += [
                *(f"address add {cidr} dev {part['device']} nodad" for cidr in cidrs if cidr),
                f"link set {part['device']} up",
            ]
        for space in spaces:
            subprocess.run(["ip", "netns", "add", space], check=True)
        self.run("switch", "ip", "-batch", "-", text="\n".join(batch) + "\n")
        for name, lines in inner.items():
            self.run(name, "ip", "-batch", "-", text="\n".join(lines) + "\n")

    def _serve(self) -> None:
        for name, host in self.hosts.items():
            wanted = [
                [flow[f"address{family}"], flow["port"]]
                for flow in host["serves"].values()
                for family in (4, 6)
            ]
            management = host["interfaces"]["management"]
            wanted += [[management["ipv4"], 22], [management["ipv6"], 22]]
            server = subprocess.Popen(
                ["ip", "netns", "exec", self.space(name), sys.executable, "-c", textwrap.dedent(SERVICES)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self.services.append(server)
            assert server.stdin
            assert server.stdout
            server.stdin.write(json.dumps(wanted))
            server.stdin.close()
            assert server.stdout.readline().strip() == "ready"

    def visit(self, name: str, phase: str, run: Mapping[str, Any], wish: Mapping[str, Any]) -> dict[str, Any]:
        directory = os.path.join(self.directory.name, name)
        given = json.dumps([phase, run, wish, directory])
        found: dict[str, Any] = json.loads(
            self.run(name, sys.executable, "-c", textwrap.dedent(VISIT), text=given)
        )
        return found

    def verify(
        self,
        options: Options | None = None,
        during: Callable[[str], None] = lambda phase: None,
        expected: tuple[str, ...] = (),
    ) -> Verdict:
        """All phases on all hosts; data is taken as there, for no store runs here."""
        plan: Plan = verify_plan.make(self.model, options or lab_options())
        run = {"magic": 0x5B5B, "seconds": 60, "rate": 400}
        visits: dict[str, dict[str, Any]] = {name: {"problem": ""} for name in self.names}
        for phase in ("open", "shoot", "collect"):
            during(phase)
            macs = {name: visits[name]["open"]["macs"] for name in self.names if "open" in visits[name]}

            def one(name: str, phase: str = phase, macs: Any = macs) -> None:
                wish = request(self.model, plan, name, phase, macs, 0)
                asked = wish.pop("asks", [])
                visits[name][phase] = self.visit(name, phase, run, {**wish, "asks": []})
                if phase == "collect":
                    visits[name][phase]["answers"] = [right(self.model, ask, name) for ask in asked]

            with ThreadPoolExecutor(max_workers=4) as pool:
                list(pool.map(one, self.names))
        return judge(self.model, plan, visits, expected, 0.0)

    def close(self) -> None:
        for server in self.services:
            server.kill()
            server.wait()
        for name in [*self.names, "switch"]:
            subprocess.run(["ip", "netns", "del", self.space(name)], check=False, capture_output=True)
        self.directory.cleanup()
