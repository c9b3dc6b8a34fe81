#!/usr/bin/env python3
"""Measure a rollback on the running lab: how fast it clamps and converges, what it costs, whom it touches.

    bench/rollback.py                    # rollback to core, 120 s of counting, restore; reports/rollback.json
    bench/rollback.py --counters start   # only the counters on the training nodes: start, read, stop

Prints one JSON object. Connections are counted on the nodes, before any rule of ours, by a table that this
script puts into their network namespaces from outside and takes out again. Bytes are those of the telemetry
interface's own HTB classes, compared with what the plan says for the series that the node has.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "module_utils"), str(ROOT / "lab")]

from sblab import topology
from sideband import price, report

TABLE = "sideband_bench"
COUNTERS = ("opened", "ssh", "datagrams")
CONNECTIONS_CLOSE_SECONDS = 150
SETTLE_SECONDS = 45
COUNT_SECONDS = 120
WIRE = {
    "request": price.WIRE_REQUEST_BYTES,
    "series": price.WIRE_SERIES_BYTES,
    "text": price.WIRE_TEXT_BYTES,
    "poll": price.WIRE_POLL_BYTES,
}


class BenchError(Exception):
    """The bench cannot go on; the text says why and what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def training_nodes() -> list[topology.Host]:
    return [
        host
        for host in topology.load().hosts.values()
        if any(link.plane == "training" for link in host.links)
    ]


def inside(host: topology.Host, *words: str, text: str | None = None) -> str:
    """A command of this machine in a host's network namespace: nothing runs on the host, nobody logs in."""
    done = subprocess.run(
        ["ip", "netns", "exec", host.namespace, *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(
            f"{host.name}: {' '.join(words)}: {done.stderr.strip()}; hint: is the lab up (lab/lab status)?"
        )
    return done.stdout


# -- counters ---------------------------------------------------------------------------------------------


def ruleset(devices: list[str]) -> str:
    """Counts on every interface, before any other hook; without `ct`, which would start tracking."""
    hooked = ", ".join(f'"{device}"' for device in devices)
    return f"""
table netdev {TABLE} {{
  counter opened {{}}
  counter ssh {{}}
  counter datagrams {{}}
  set callers4 {{ type ipv4_addr . inet_service; size 1024; flags dynamic; }}
  set callers6 {{ type ipv6_addr . inet_service; size 1024; flags dynamic; }}
  chain arrivals {{
    type filter hook ingress devices = {{ {hooked} }} priority -500; policy accept;
    meta l4proto tcp tcp flags & (syn | ack) == syn counter name opened
    meta protocol ip tcp flags & (syn | ack) == syn add @callers4 {{ ip saddr . tcp dport }}
    meta protocol ip6 tcp flags & (syn | ack) == syn add @callers6 {{ ip6 saddr . tcp dport }}
    meta l4proto tcp tcp dport 22 counter name ssh
    meta l4proto udp counter name datagrams
  }}
}}
"""


def stop_counters() -> None:
    for host in training_nodes():
        subprocess.run(
            ["ip", "netns", "exec", host.namespace, "nft", "delete", "table", "netdev", TABLE],
            capture_output=True,
            check=False,
        )


def start_counters() -> None:
    stop_counters()
    for host in training_nodes():
        inside(host, "nft", "-f", "-", text=ruleset([link.device for link in host.links]))


def read_counters() -> dict[str, dict[str, int]]:
    found = {}
    for host in training_nodes():
        listed = json.loads(inside(host, "nft", "-j", "list", "counters", "table", "netdev", TABLE))
        counters = [entry["counter"] for entry in listed["nftables"] if "counter" in entry]
        found[host.name] = {one["name"]: int(one["packets"]) for one in counters}
        if set(found[host.name]) != set(COUNTERS):
            raise BenchError(f"{host.name}: counters missing; hint: bench/rollback.py --counters start")
    return found


def read_callers() -> dict[str, list[str]]:
    """Who opened what, as `address port`: evidence for whoever finds a figure that is not 0."""
    found = {}
    for host in training_nodes():
        listed = json.loads(inside(host, "nft", "-j", "list", "sets", "table", "netdev", TABLE))
        sets = [entry["set"] for entry in listed["nftables"] if "set" in entry]
        elements = [element for one in sets for element in one.get("elem", [])]
        found[host.name] = sorted(" ".join(map(str, element["concat"])) for element in elements)
    return found


def connections(counted: dict[str, dict[str, int]]) -> int:
    """Connections that somebody opened to a training node. Packets of a kept session count as one."""
    return sum(max(one["opened"], 1 if one["ssh"] else 0) for one in counted.values())


def wait_for_no_login() -> None:
    """Ansible keeps its sessions open for a while; one from before must not be counted as ours."""
    addresses = {link.ipv4.split("/")[0] for host in training_nodes() for link in host.links}
    deadline = time.monotonic() + CONNECTIONS_CLOSE_SECONDS
    said = False
    while True:
        listed = subprocess.run(
            ["ss", "-Htn", "state", "established", "dport", "=", ":22"], capture_output=True, text=True
        )
        peers = {line.split()[3].rsplit(":", 1)[0] for line in listed.stdout.splitlines()}
        if not peers & addresses:
            return
        if time.monotonic() > deadline:
            raise BenchError(
                f"somebody stays logged in to {', '.join(sorted(peers & addresses))}; hint: close it"
            )
        if not said:
            say("waiting for the controller's kept sessions to training nodes to close …")
            said = True
        time.sleep(2)


# -- the plays --------------------------------------------------------------------------------------------


def play(name: str, *words: str) -> float:
    """Run a production playbook as an operator would, with connections of its own. Seconds it took."""
    with tempfile.TemporaryDirectory(prefix="sideband-cp-") as control:
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": control,
        }
        started = time.monotonic()
        done = subprocess.run(
            [Path(sys.executable).parent / "ansible-playbook", f"playbooks/{name}.yml", *words],
            cwd=ROOT,
            env=environment,
            stdout=sys.stderr,
            check=False,
        )
        seconds = time.monotonic() - started
    if done.returncode:
        raise BenchError(f"playbooks/{name}.yml ended with {done.returncode}; its own words are above")
    return seconds


def in_force() -> list[dict[str, Any]]:
    done = subprocess.run(
        [ROOT / "lab" / "lab", "exec", "mgmt1", "sideband-level", "--show", "--json"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BenchError(f"mgmt1: {done.stderr.strip()}; hint: run playbooks/site.yml first")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


# -- bytes ------------------------------------------------------------------------------------------------


_ROOT = re.compile(r"^qdisc htb (\w+): root .*\bdefault (0x)?(?P<default>[0-9a-f]+)", re.MULTILINE)
_CLASS = re.compile(
    r"^class htb \w*:(?P<id>\w+) (?:root|parent \w*:(?P<parent>\w+)).*\n Sent (?P<bytes>\d+) bytes", re.M
)


def class_bytes(qdiscs: str, classes: str) -> int | None:
    """Bytes of the leaf classes but the default one, from what tc prints; None where there is no HTB."""
    root = _ROOT.search(qdiscs)
    if root is None:
        return None
    found = list(_CLASS.finditer(classes))
    parents = {one["parent"] for one in found}
    leaves = [one for one in found if one["id"] not in parents and one["id"] != root["default"]]
    return sum(int(one["bytes"]) for one in leaves)


def sent_bytes(host: topology.Host) -> int:
    """What left by the telemetry interface's classes for our flows; the rest is in the default class."""
    device = next(link.device for link in host.links if link.plane == "edge")
    # As text: the tc of Debian 12 prints classes in no other form.
    qdiscs, classes = (inside(host, "tc", "-s", what, "show", "dev", device) for what in ("qdisc", "class"))
    found = class_bytes(qdiscs, classes)
    if found is None:
        raise BenchError(f"{host.name}: {device} has no HTB; hint: run playbooks/site.yml first")
    return found


def series_counted() -> dict[str, dict[str, int]]:
    """How many series each node has in the hot tier, by job: asked on the gateway, as fleet_info does."""
    script = (
        "import json,ssl,http.client,urllib.parse as u;"
        "p='/etc/sideband/gateway/';c=ssl.create_default_context(cafile=p+'ca.crt');"
        "c.load_cert_chain(p+'host.crt',p+'host.key');"
        "h=http.client.HTTPSConnection(*LAKE,timeout=9,context=c);"
        "q='count by (node, job) (last_over_time({job=~\"node|policy\"}[65s]))';"
        "h.request('GET','/hot/api/v1/query?query='+u.quote(q));"
        "print(h.getresponse().read().decode())"
    ).replace("LAKE", repr(lake_address()))
    done = subprocess.run(
        [ROOT / "lab" / "lab", "exec", "gateway1", "python3", "-c", script], capture_output=True, text=True
    )
    if done.returncode:
        raise BenchError(f"gateway1: the lake cannot be asked: {done.stderr.strip()[-200:]}")
    found: dict[str, dict[str, int]] = {}
    for one in json.loads(done.stdout)["data"]["result"]:
        labels = one["metric"]
        found.setdefault(labels["node"], {})[labels["job"]] = int(one["value"][1])
    return found


def lake_address() -> tuple[str, int]:
    lake = next(host for host in topology.load().hosts.values() if host.name.startswith("lake"))
    return next(link.ipv4.split("/")[0] for link in lake.links if link.plane == "core"), 8430


def ladder() -> dict[str, Any]:
    import yaml

    path = ROOT / "inventories" / "lab" / "group_vars" / "all" / "ladder.yml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())["sideband_ladder"]
    return found


def seconds_of(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def planned_bytes(series: dict[str, int], level: str, seconds: float) -> float:
    """What the plan's price gives for the series of a node, in that time."""
    rungs = ladder()
    rung = next(one for one in rungs["levels"] if one["name"] == level)
    sampled = price.level_bytes_per_second(series.get("node", 0), seconds_of(rung["period"]))
    steady = price.always_bytes_per_second(
        series.get("policy", 0), seconds_of(rungs["always"]["period"]), seconds_of(rung["poll"])
    )
    return (sampled + steady) * seconds


def count_bytes(level: str) -> dict[str, Any]:
    hosts = training_nodes()
    before, started = {host.name: sent_bytes(host) for host in hosts}, time.monotonic()
    say(f"counting bytes for {COUNT_SECONDS} s …")
    time.sleep(COUNT_SECONDS)
    seconds = time.monotonic() - started
    sent = {host.name: sent_bytes(host) - before[host.name] for host in hosts}
    series = series_counted()
    planned = {host.name: round(planned_bytes(series.get(host.name, {}), level, seconds)) for host in hosts}
    return {"sent": sent, "planned": planned, "series": series, "seconds": round(seconds, 1)}


# -- the whole --------------------------------------------------------------------------------------------


def measure(level: str) -> dict[str, Any]:
    say(f"stated before the run: {WIRE} (sideband.price)")
    highest = ladder()["levels"][0]["name"]
    if any(document["level"] != highest for document in in_force()):
        play("restore")
    wait_for_no_login()
    start_counters()
    try:
        rollback_seconds = play("rollback", "-e", f"level={level}", "-e", "reason=bench")
        down = json.loads((ROOT / "reports" / "rollback.json").read_text())
        touched = read_counters()
        time.sleep(SETTLE_SECONDS)
        weighed = count_bytes(level)
        restore_seconds = play("restore", "-e", "reason=bench")
        up = json.loads((ROOT / "reports" / "restore.json").read_text())
        touched_in_all, callers = read_counters(), read_callers()
    finally:
        stop_counters()
    ratio = round(sum(weighed["sent"].values()) / max(1, sum(weighed["planned"].values())), 3)
    figures = {
        **down["figures"],
        "command_seconds": round(rollback_seconds, 1),
        "connections_to_training_nodes": connections(touched_in_all),
        "packets_at_training_nodes": touched_in_all,
        "callers_of_training_nodes": callers,
        "connections_during_rollback": connections(touched),
        "wire_bytes": WIRE,
        "bytes_vs_plan": ratio,
        "bytes": weighed,
        "restore": {**up["figures"], "command_seconds": round(restore_seconds, 1)},
    }
    checks = [
        *down["checks"],
        *({**one, "name": f"restore: {one['name']}"} for one in up["checks"]),
        report.expect("connections to training nodes", figures["connections_to_training_nodes"], 0),
        report.check(
            "seconds to clamp", figures["seconds_to_clamp"] <= 3, figures["seconds_to_clamp"], "at most 3"
        ),
        report.check(
            "seconds to converge",
            figures["seconds_to_converge"] <= 15,
            figures["seconds_to_converge"],
            "at most 15",
        ),
        report.check("bytes against plan", 0.8 <= ratio <= 1.2, ratio, "0.8 to 1.2"),
    ]
    report.write("rollback", report.passes(checks), figures, checks, down["versions"], str(ROOT / "reports"))
    return {
        "pass": report.passes(checks),
        "figures": figures,
        "failed": [one for one in checks if not one["pass"]],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--level", default="core", choices=[one["name"] for one in ladder()["levels"]])
    parser.add_argument("--counters", choices=("start", "read", "stop"))
    options = parser.parse_args()
    try:
        if options.counters == "start":
            wait_for_no_login()
            start_counters()
        elif options.counters == "stop":
            stop_counters()
        elif options.counters == "read":
            counted = read_counters()
            found = {"connections_to_training_nodes": connections(counted), "packets": counted}
            print(json.dumps({**found, "callers": read_callers()}))
        else:
            result = measure(options.level)
            print(json.dumps(result, indent=1))
            return 0 if result["pass"] else 1
    except BenchError as error:
        say(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
