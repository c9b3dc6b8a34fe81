"""Documents on the lab: what a rack and a node refuse, what survives, what `sideband-level` does alone
(acceptance 4, B5, D7, D8). Leaves the fleet at full."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RACK_STATE = "/var/lib/sideband/rack"
NODE_STATE = "/var/lib/sideband/policy"

pytestmark = pytest.mark.lab


def on(host: str, script: str, given: str = "", rc: int | None = 0) -> str:
    done = subprocess.run(
        [str(ROOT / "lab/lab"), "exec", host, "sh", "-c", script],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert rc is None or done.returncode == rc, (
        f"{host}: {script}: {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def level(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(on("mgmt1", shlex.join(["sideband-level", *words, "--json"])))
    return found


def eventually(what: Callable[[], bool], seconds: float = 90) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(1)
    return what()


def obeyed(node: str) -> dict[str, Any]:
    stored = json.loads(
        on(node, f'cat {NODE_STATE}/obeyed.json 2>/dev/null || echo \'{{"document":"{{}}"}}\'')
    )
    found: dict[str, Any] = json.loads(stored["document"])
    return found


def refused(rack: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(on(rack, f"cat {RACK_STATE}/refused.json 2>/dev/null || echo '{{}}'"))
    return found


def signed(level_: str, generation: int, scope: dict[str, Any], site: str = "lab") -> tuple[str, str]:
    """A document signed by the lab's own key, made on the origin outside sideband-level."""
    value = {
        "site": site,
        "scope": scope,
        "generation": generation,
        "level": level_,
        "actions": [],
        "issued": "2026-01-01T00:00:00Z",
    }
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    script = (
        "d=$(mktemp -d); trap 'rm -rf $d' EXIT; cat > $d/t; "
        "ssh-keygen -q -Y sign -f /var/lib/sideband/policy/signing_key -n sideband-policy $d/t; cat $d/t.sig"
    )
    return text, on("mgmt1", script, given=text)


def bundle(*pairs: tuple[str, str]) -> str:
    return json.dumps(
        {"documents": [{"document": text, "signature": signature} for text, signature in pairs]}
    )


def hand_over(rack: str, text: str) -> dict[str, Any]:
    """Through the one door that a rack has for documents: SSH from the origin with its key."""
    config = json.loads(on("mgmt1", "cat /etc/sideband/policy/level.json"))
    address = next(one["address"] for one in config["racks"] if one["name"] == rack)
    script = (
        "ssh -F none -T -o BatchMode=yes -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes "
        f"-o UserKnownHostsFile={config['known_hosts']} -i {config['rack_key']} "
        f"{config['user']}@{address} anything"
    )
    found: dict[str, Any] = json.loads(on("mgmt1", script, given=text, rc=None))
    return found


def now() -> int:
    return int(time.time() * 1000)


@pytest.fixture(autouse=True)
def at_full() -> Iterator[None]:
    yield
    level("full", "--reason", "test")


REFUSALS: dict[str, tuple[str, Callable[[], str]]] = {
    "forged": (
        "signature",
        lambda: bundle(
            (
                signed("core", now(), {"kind": "all"})[0].replace("core", "full"),
                signed("core", now(), {"kind": "all"})[1],
            )
        ),
    ),
    "truncated": ("malformed", lambda: bundle(signed("core", now(), {"kind": "all"}))[:-40]),
    "old": ("old", lambda: bundle(signed("core", 1000, {"kind": "all"}))),
    "of another site": ("site", lambda: bundle(signed("core", now(), {"kind": "all"}, site="elsewhere"))),
    "for another rack": (
        "scope",
        lambda: bundle(signed("core", now(), {"kind": "racks", "names": ["rack1"]})),
    ),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_rack_refuses_and_counts_a_document_that_is(kind: str) -> None:
    level("full", "--reason", "test")
    reason, make = REFUSALS[kind]
    before, served = refused("rack2"), on("rack2", f"cat {RACK_STATE}/documents.map {RACK_STATE}/intake.map")
    answer = hand_over("rack2", make())
    assert not answer["accepted"]
    assert [one["reason"] for one in answer["refused"]] == [reason]
    assert refused("rack2").get(reason, 0) == before.get(reason, 0) + 1
    assert on("rack2", f"cat {RACK_STATE}/documents.map {RACK_STATE}/intake.map") == served


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_node_refuses_and_counts_a_document_that_is(kind: str) -> None:
    """As served by a stolen rack: put past sideband-accept, straight into the front's map."""
    issued = level("full", "--reason", "test")
    assert eventually(lambda: obeyed("node3").get("generation") == issued["generation"])
    reason, make = REFUSALS[kind]
    before = node_refused("node3", reason)
    body = base64.b64encode(make().encode()).decode()
    put(
        f"set map {RACK_STATE}/documents.map body {body}",
        f"set map {RACK_STATE}/documents.map etag stolen{now()}",
    )
    assert eventually(lambda: node_refused("node3", reason) > before), on(
        "node3", "journalctl -u sideband-policy -n 20"
    )
    assert obeyed("node3")["generation"] == issued["generation"]
    assert on("node3", f"cmp /etc/sideband/node/levels/full.yml {NODE_STATE}/scrape.yml", rc=0) == ""


def put(*commands: str) -> None:
    """Commands to the stolen rack's front."""
    script = (
        "import socket,sys\n"
        "for line in sys.stdin.read().splitlines():\n"
        " s=socket.socket(socket.AF_UNIX);s.connect('/run/sideband/rack/admin.sock')\n"
        " s.sendall(line.encode()+b'\\n');print(s.recv(4096).decode(),end='')"
    )
    said = on("rack2", f"python3 -c {shlex.quote(script)}", given="\n".join(commands))
    assert said.strip() == "", said


def lake(query: str) -> list[dict[str, Any]]:
    script = (
        "import json,ssl,http.client,sys,urllib.parse as u;p='/etc/sideband/gateway/'\n"
        "c=ssl.create_default_context(cafile=p+'ca.crt');c.load_cert_chain(p+'host.crt',p+'host.key')\n"
        "h=http.client.HTTPSConnection('10.30.0.41',8430,timeout=9,context=c)\n"
        "h.request('GET','/hot/api/v1/query?query='+u.quote(sys.stdin.read()));print(h.getresponse().read().decode())"
    )
    found: list[dict[str, Any]] = json.loads(
        on("gateway1", f"python3 -c {shlex.quote(script)}", given=query)
    )["data"]["result"]
    return found


def node_refused(node: str, reason: str) -> float:
    found = lake(f'sideband_policy_refused_total{{node="{node}",reason="{reason}"}}')
    return float(found[0]["value"][1]) if found else 0.0


def test_a_dead_sampler_takes_no_heartbeat_along() -> None:
    """D8: up, capacity and level flow though vmagent and the exporter are dead."""
    on("node1", "systemctl stop sideband-agent.service sideband-exporter.service")
    try:
        stopped = time.time()
        names = (
            "up",
            "node_cpu_count",
            "node_memory_MemTotal_bytes",
            "node_filesystem_size_bytes",
            "node_vmstat_oom_kill",
            "node_filesystem_readonly",
            "sideband_policy_level",
            "sideband_policy_generation",
        )
        for name in names:
            query = f'timestamp({name}{{node="node1",job="policy"}})'
            assert eventually(
                lambda query=query: any(float(one["value"][1]) > stopped for one in lake(query))
            ), name
    finally:
        on("node1", "systemctl start sideband-exporter.service sideband-agent.service")


def test_a_node_of_its_own_scope_follows_alone() -> None:
    level("full", "--reason", "test")
    issued = level("core", "--scope", "node:node1", "--reason", "test")
    assert issued["ok"]
    assert eventually(lambda: obeyed("node1").get("generation") == issued["generation"])
    assert obeyed("node1")["level"] == "core"
    assert obeyed("node2").get("level", "full") == "full"


def test_a_restart_of_the_front_keeps_the_document() -> None:
    level("core", "--scope", "rack:rack2", "--reason", "test")
    held = on("rack2", f"cat {RACK_STATE}/intake.map").strip()
    on("rack2", "systemctl restart sideband-rack-front.service")
    script = (
        "import socket;s=socket.socket(socket.AF_UNIX);s.connect('/run/sideband/rack/admin.sock');"
        f"s.sendall(b'show map {RACK_STATE}/intake.map\\n');print(s.recv(65536).decode())"
    )
    assert eventually(lambda: held in on("rack2", f"python3 -c {shlex.quote(script)} 2>/dev/null || true"))
    assert held != "bytes_per_second 0"


def test_a_dead_rack_delays_nobody_and_catches_up() -> None:
    level("full", "--reason", "test")
    on("rack2", "systemctl stop ssh.socket ssh.service")
    try:
        done = on("mgmt1", "sideband-level core --json --reason test", rc=1)
        racks = {one["rack"]: one for one in json.loads(done)["racks"]}
        assert racks["rack1"]["outcome"] == "ok"
        assert racks["rack2"]["outcome"] == "unreachable"
        assert racks["rack2"]["seconds"] < 6
    finally:
        on("rack2", "systemctl start ssh.socket 2>/dev/null || systemctl start ssh.service")
    assert level("--resend")["ok"]
    assert "bytes_per_second 0" not in on("rack2", f"cat {RACK_STATE}/intake.map")


def test_the_rack_key_opens_nothing_else() -> None:
    """B5: whatever is asked for with it, the one command runs."""
    assert "accepted" in hand_over("rack1", "{}")
    config = json.loads(on("mgmt1", "cat /etc/sideband/policy/level.json"))
    address = config["racks"][0]["address"]
    base = (
        "-F none -o BatchMode=yes -o IdentitiesOnly=yes "
        f"-o UserKnownHostsFile={config['known_hosts']} -i {config['rack_key']}"
    )
    on("mgmt1", f"ssh {base} -T {config['user']}@{address} 'touch /tmp/sideband-was-here'", rc=None)
    on(
        "mgmt1",
        f"echo x > /tmp/x; timeout 20 scp {base} /tmp/x {config['user']}@{address}:/tmp/sideband-copied",
        rc=None,
    )
    forward = (
        f"timeout 5 ssh {base} -N -o ExitOnForwardFailure=yes -R 9999:127.0.0.1:22 {config['user']}@{address}"
    )
    assert "refused" in on("mgmt1", f"{forward} 2>&1 || echo refused", rc=None)
    assert on("rack1", "ls -d /tmp/sideband-was-here /tmp/sideband-copied 2>/dev/null", rc=None) == ""
