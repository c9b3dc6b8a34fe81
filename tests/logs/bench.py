"""The log path from one node's reader to the store, from the roles' own configuration, by the real daemons,
in one
namespace and one root. What a node, a rack and the store run stands side by side: their ports and paths do
not meet."""

from __future__ import annotations

import json
import os
import shlex
import ssl
import subprocess
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import render_kit
from contract_kit import change, lab
from front.bench import Bench, make_root, run
from front.client import read_answer, socket_in
from sideband.contract import compile_site

from services import relp

from .authority import Authority

PROJECT = Path(__file__).resolve().parents[2]
NAMESPACE = "sideband-logs"
HOSTS = {"node": "node1", "rack": "rack1", "logs": "lake1"}
USERS = {"root": 0, "sideband": 890, "sideband-accept": 891, "sideband-logs": 892, "sideband-keeper": 893,
         "sideband-policy": 894, "sideband-job": 895, "sideband-sample": 896}  # fmt: skip
HOPS = ("sideband-ship", "sideband-relay-front", "sideband-relay", "sideband-logs-front",
        "sideband-logs-keeper", "sideband-logs-store")  # fmt: skip
LOGS: dict[str, Any] = {
    "retention": "7d", "cap": "1GiB", "free": "1MiB", "spool": {"node": "8MiB", "rack": "64MiB"},
    "paths": [{"path": "/var/log/bench/*.log"}, {"path": "/var/log/tenant/*.log", "tenant": "alpha"}],
    "rules": [
        {"path": "/var/log/bench/sampled*", "one_of": 10},
        {"path": "/var/log/bench/grave*", "least": "error"},
    ],
}  # fmt: skip
EXPORT = {"endpoint": "http://127.0.0.1:7480", "bucket": "logs"}
STORE, EDGE, CORE = 8537, "10.21.0.21", "10.30.0.41"


def have() -> bool:
    mirror = PROJECT / ".cache/mirror"
    return bool([*mirror.glob("archives/rsyslog-*"), *mirror.glob("trixie/victoria-logs_*")])


@dataclass
class LogBench(Bench):
    names: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def make(cls, directory: Path) -> LogBench:
        (directory / "s3.key").write_text("key:secret\n")
        noun = {**LOGS, "export": {**EXPORT, "secret_file": f"{directory}/s3.key"}}
        model = compile_site(*change(*lab(), {"set": {"all.sideband_logs": noun}}))
        authority = Authority(directory / "pki")
        bench = cls(directory, make_root(directory))
        with open(bench.root / "etc/passwd", "a") as users, open(bench.root / "etc/group", "a") as groups:
            for name, number in USERS.items():
                if number > 891:
                    users.write(f"{name}:x:{number}:{number}::/nonexistent:/usr/sbin/nologin\n")
                    groups.write(f"{name}:x:{number}:\n")
        archive = next((PROJECT / ".cache/mirror/archives").glob("rsyslog-*.tar.gz"))
        (bench.root / "opt/sideband/rsyslog").mkdir(parents=True)
        run("tar", "-xf", str(archive), "-C", str(bench.root / "opt/sideband/rsyslog"), "--no-same-owner")
        authority.identity("tenant", "alpha")
        for word, host in HOSTS.items():
            found = render_kit.fragment(
                word, model, host, authority.identity(word, host), directory,
                sideband_mirror_manifest=str(PROJECT / ".cache/mirror/manifest.json"),
                sideband_mirror_url="http://10.90.0.61:8080", sideband_mirror_archive_suite="trixie",
                sideband_policy_allowed_signers="nobody",
            )  # fmt: skip
            bench.fragments[host] = found["fragment"]
            bench.lay_out(found)
        return bench

    def place(self, item: dict[str, Any], data: bytes | None) -> None:
        path = self.root / item["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(data)
        os.chown(path, USERS[item.get("owner", "root")], USERS[item.get("group", item.get("owner", "root"))])
        path.chmod(int(item.get("mode", "0644"), 8))

    def network(self) -> None:
        run("ip", "netns", "add", NAMESPACE)
        run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
        for address in (
            f"{EDGE}/24",
            f"{CORE}/24",
            "10.21.0.11/24",
            "fd00:5b:21::21/64",
            "fd00:5b:30::41/64",
        ):
            nodad = ["nodad"] if ":" in address else []
            run("ip", "-n", NAMESPACE, "address", "add", address, "dev", "lo", *nodad)

    def start(self, unit: str) -> None:
        text = (self.root / "etc/systemd/system" / f"{unit}.service").read_text().replace("\\\n", " ")
        setting = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
        environment = {"PATH": "/usr/sbin:/usr/bin"}
        environment.update([setting["Environment"].split("=", 1)] if "Environment" in setting else [])
        for name in setting.get("RuntimeDirectory", "").split():
            runtime = self.root / "run" / name
            runtime.mkdir(parents=True, exist_ok=True)
            os.chown(runtime, USERS[setting["User"]], 890)
        # The reader may read what others may not; here as root, for capabilities do not pass through chroot.
        user = 0 if unit == "sideband-logs" else USERS[setting["User"]]
        inside = ["ip", "netns", "exec", NAMESPACE, "chroot", f"--userspec={user}:890", "--groups=890,891",
                  str(self.root)]  # fmt: skip
        log = os.open(self.directory / f"{unit}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for key in ("ExecStartPre", "ExecStart"):
            if key not in setting:
                continue
            argv = [*inside, *shlex.split(setting[key])]
            if key == "ExecStartPre":
                subprocess.run(argv, env=environment, stdout=log, stderr=log, check=True)
            else:
                self.processes[unit] = subprocess.Popen(
                    argv, env=environment, stdout=log, stderr=log, start_new_session=True
                )
        os.close(log)

    def configure_reader(self, **changes: Any) -> None:
        path = self.root / "etc/sideband/logs/logs.json"
        value = {**json.loads(path.read_text()), "journal": False, "containers": False, **changes}
        path.write_text(json.dumps(value))
        (self.root / "run/sideband/textfile/logs").mkdir(parents=True, exist_ok=True)

    def kill(self, unit: str) -> None:
        """As a power cut would: with all that it has started."""
        process = self.processes.pop(unit)
        os.killpg(process.pid, 9)
        process.wait()

    def start_all(self) -> None:
        self.network()
        for unit in reversed(HOPS):
            self.start(unit)
        for port in (STORE, 8536, 8535):
            self.wait_for(("127.0.0.1", port))
        for address in ((EDGE, 8431), (CORE, 8432), (CORE, 8433)):
            self.wait_for(address)
        self.start("sideband-logs")

    def wait_for(self, address: tuple[str, int]) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket_in(NAMESPACE, address, 1).close()
                return
            except OSError as problem:
                dead = {name: p.returncode for name, p in self.processes.items() if p.poll() is not None}
                if dead or time.monotonic() > deadline:
                    logs = "".join((self.directory / f"{name}.log").read_text()[-3000:] for name in dead)
                    raise RuntimeError(
                        f"nothing at {address} ({problem}); ended: {dead}\n{logs}"
                    ) from problem
                time.sleep(0.1)

    def stop_all(self) -> None:
        for unit in list(self.processes):
            self.stop(unit)
        subprocess.run(["ip", "netns", "delete", NAMESPACE], capture_output=True)

    def plain(self, port: int, path: str, method: str = "GET", body: bytes = b"") -> bytes:
        with socket_in(NAMESPACE, ("127.0.0.1", port), 20) as stream:
            head = f"{method} {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\n"
            head += "Content-Type: application/x-www-form-urlencoded\r\n" if body else ""
            stream.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            with stream.makefile("rb") as reader:
                answer = read_answer(reader)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.text[:500]}")
        return answer.body

    def rows(self, query: str = "*") -> list[dict[str, Any]]:
        form = urllib.parse.urlencode({"query": query, "start": "now-30d"}).encode()
        return [
            json.loads(line) for line in self.plain(STORE, "/select/logsql/query", "POST", form).splitlines()
        ]

    def when(self, query: str, count: int, seconds: float = 60) -> list[dict[str, Any]]:
        """Rows, as soon as there are so many."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.rows(query)
            except (OSError, RuntimeError, json.JSONDecodeError):
                found = []  # the store is on its way
            if len(found) >= count or time.monotonic() > deadline:
                return found
            time.sleep(0.3)

    def figures(self) -> dict[str, float]:
        text = self.plain(8539, "/metrics").decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines()}

    def relp(self, identity: str, address: tuple[str, int], text: str) -> bytes:
        """One record by hand, with a certificate of the site's; what is answered."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.check_hostname = False
        context.load_cert_chain(str(self.pki / f"{identity}.crt"), str(self.pki / f"{identity}.key"))
        with context.wrap_socket(socket_in(NAMESPACE, address, 10)) as stream:
            reader = relp.Reader(65536)
            answers: list[relp.Frame] = []
            stream.sendall(relp.frame(1, b"open", relp.OFFER))
            while len(answers) < 2:
                data = stream.recv(65536)
                if not data:
                    raise ConnectionResetError("closed")
                for answer in reader.feed(data):
                    answers.append(answer)
                    if len(answers) == 1:
                        stream.sendall(relp.frame(2, b"syslog", text.encode()))
            return answers[1].data
