"""What role alerts brings to a host, by the real daemons in a network namespace of their own: store, judge,
Alertmanager, notifier, and the stand-ins for those who are told.

The role's own files and unit lines are taken; paths lead below one directory, and waits are shortened."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import render_kit
from front.client import read_answer, socket_in
from querygate.kit import binary

ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = "sideband-alerts"
STANDS = "127.0.0.1:8090"
# Seconds instead of minutes; what is computed and told is the same.
RULES = (("interval: 15s", "interval: 1s"), ("interval: 30s", "interval: 1s"), ("for: 30s", "for: 1s"),
         ("for: 1m", "for: 3s"))  # fmt: skip
MANAGER = (('"1m"', '"2s"'), ('"30s"', '"1s"'), ('"5s"', '"1s"'), ('"60s"', '"2s"'))
SCRAPE = (("scrape_interval: 15s", "scrape_interval: 1s"), ("scrape_timeout: 10s", "scrape_timeout: 1s"))
UNITS = ("store.service", "manager.service", "notifier.service", "judge@near.service")


class Stack:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.programs = {
            name: binary(name, package, directory / "programs")
            for name, package in (("victoria-metrics", "victoria-metrics"), ("vmalert", "victoria-metrics"),
                                  ("prometheus-alertmanager", "prometheus-alertmanager"),
                                  ("amtool", "prometheus-alertmanager"))
        }  # fmt: skip

    @property
    def complete(self) -> bool:
        return all(self.programs.values())

    # -- laying out

    def lay_out(self, model: dict[str, Any], secrets: dict[str, str]) -> None:
        identity = {"ca": "", "certificate": "", "key": ""}
        made = render_kit.fragment(
            "alerts", model, "region1", identity, self.directory, sideband_certificate_ends=[],
            sideband_policy_allowed_signers="x", **secrets,
        )  # fmt: skip
        for one in made["fragment"]["directories"]:
            self.place(one["path"]).mkdir(parents=True, exist_ok=True)
        for one in [*made["secrets"], *made["fragment"]["files"]]:
            path = self.place(one["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            if "content_base64" in one:
                path.write_bytes(base64.b64decode(one["content_base64"]))
            else:
                path.write_text(self.shortened(path, self.moved(str(one["content"]))))

    def place(self, path: str) -> Path:
        return self.directory / path.lstrip("/")

    def moved(self, text: str) -> str:
        for top in ("/etc/sideband", "/var/lib/sideband", "/opt/sideband"):
            text = text.replace(top, str(self.place(top)))
        for name, program in self.programs.items():
            text = text.replace(f"/usr/bin/{name} ", f"{program} ")
        return text

    def shortened(self, path: Path, text: str) -> str:
        if path.name == "alertmanager.yml":
            for hook in (config := json.loads(text))["receivers"]:
                for one in hook.get("webhook_configs", ()):
                    if one.get("url", "").endswith("/api/v1/inbox"):  # a gateway is another part's
                        one.update(url=f"http://{STANDS}/hook/inbox", http_config={})
            text = json.dumps(config)
        changes = {"alertmanager.yml": MANAGER, "scrape.yml": SCRAPE}.get(path.name, RULES)
        for old, new in changes if path.suffix == ".yml" else ():
            text = text.replace(old, new)
        return text

    # -- running

    def start(self) -> None:
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
        self.run("stand-ins", [sys.executable, str(ROOT / "lab/stand_ins.py"), STANDS])
        for unit in UNITS:
            self.unit(unit)
        self.wait(lambda: self.http("127.0.0.1:8554", "/health"))

    def unit(self, name: str) -> None:
        instance = name.partition("@")[2].partition(".")[0]
        file = f"sideband-alerts-{name.replace(instance + '.', '.') if instance else name}"
        text = (
            self.place(f"/etc/systemd/system/{file}").read_text().replace("\\\n", " ").replace("%i", instance)
        )
        setting = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and line[0] != "#")
        environment = {}
        if "EnvironmentFile" in setting:
            lines = Path(setting["EnvironmentFile"]).read_text().splitlines()
            environment = dict(line.split("=", 1) for line in lines)
        command = setting["ExecStart"]
        for key, value in environment.items():
            command = command.replace(f"${{{key}}}", value)
        self.run(name, shlex.split(command))

    def run(self, name: str, argv: list[str]) -> None:
        shared = Path(self.programs["prometheus-alertmanager"]).parents[1] / "share"
        if name == "manager.service" and shared != Path("/usr/share"):
            # Debian's Alertmanager reads its default templates there; this mount is its own.
            mounted = 'mount --bind "$0" /usr/share && exec "$@"'
            argv = ["unshare", "-m", "sh", "-c", mounted, str(shared), *argv]
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                ["ip", "netns", "exec", NAMESPACE, *argv], stdout=log, stderr=log, start_new_session=True,
                env={"PATH": os.environ["PATH"]},
            )  # fmt: skip

    def stop(self) -> None:
        for process in reversed(self.processes.values()):  # who sends before who takes, as units do
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        subprocess.run(["ip", "netns", "delete", NAMESPACE], capture_output=True)

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log")))

    def wait(self, works: Callable[[], Any], seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = works()
                if found:
                    return found
            except (OSError, RuntimeError):
                pass
            if time.monotonic() > deadline:
                ended = [name for name, process in self.processes.items() if process.poll() is not None]
                raise RuntimeError(f"nothing came of it; ended: {ended}\n{self.logs()[-6000:]}")
            time.sleep(0.1)

    # -- asking and telling

    def http(
        self, address: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> bytes:
        host, _, port = address.rpartition(":")
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body or b'')}\r\n\r\n"
        with socket_in(NAMESPACE, (host, int(port)), 10) as stream:
            stream.sendall(head.encode() + (body or b""))
            with stream.makefile("rb") as reader:
                answer = read_answer(reader)
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {answer.text[:400]}")
        return answer.body

    def push(self, text: str) -> None:
        self.http("127.0.0.1:8551", "/api/v1/import/prometheus", text.encode(), "text/plain")

    def ask(self, query: str) -> list[dict[str, Any]]:
        path = "/api/v1/query?nocache=1&query=" + urllib.parse.quote(query)
        return json.loads(self.http("127.0.0.1:8551", path))["data"]["result"]

    def raise_alerts(self, alerts: list[dict[str, Any]]) -> None:
        self.http("127.0.0.1:8552", "/api/v2/alerts", json.dumps(alerts).encode())

    def seen(self, kind: str, key: str = "", since: float = 0) -> list[dict[str, Any]]:
        found = json.loads(self.http(STANDS, f"/seen?since={since}"))
        return [one for one in found if one["kind"] == kind and one["key"].startswith(key)]
