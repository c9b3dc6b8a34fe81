"""Real stores and the real program, each on loopback or a unix socket, below one directory."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from front.client import REMOTE_WRITE, Answer, Series, read_answer, snappy, write_request
from sideband.querygate import compile_querygate

PROJECT = Path(__file__).resolve().parents[2]
TENANT, ADMINISTRATOR = "tenant/alpha", "administrator/ops"
DAY = 86_400


def binary(name: str, package: str, directory: Path) -> str:
    """A store's program: from the machine, or out of the lab's mirror. "" where there is neither."""
    places = [os.environ.get("SIDEBAND_STORES", ""), *os.environ["PATH"].split(":")]
    if found := shutil.which(name, path=":".join(place for place in places if place)):
        return found
    for archive in sorted((PROJECT / ".cache/mirror/trixie").glob(f"{package}_*.deb")):
        subprocess.run(["dpkg-deb", "-x", archive, directory], check=True)
        return shutil.which(name, path=str(directory / "usr/bin")) or ""
    return ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def http(port: int, path: str, body: bytes | None = None, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=dict(headers))
    with urllib.request.urlopen(request, timeout=10) as answer:
        data: bytes = answer.read()
        return data


@dataclass
class Kit:
    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    def start(self, name: str, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        log = open(self.directory / f"{name}.log", "ab")  # noqa: SIM115  # the process keeps it
        environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT}/module_utils"}
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, cwd=PROJECT)
        self.processes.append(process)
        return process

    def store(self, name: str, program: str, flags: Sequence[str], ready: str) -> int:
        port = self.ports[name] = free_port()
        data = self.directory / name
        data.mkdir()
        self.start(name, [program, *(flag.format(port=port, data=data) for flag in flags)])
        self.wait(lambda: http(port, ready))
        return port

    def victoria(self, name: str, program: str) -> int:
        flags = ("-httpListenAddr=127.0.0.1:{port}", "-storageDataPath={data}", "-retentionPeriod=1y",
                 "-search.latencyOffset=0s", "-loggerLevel=WARN", "-memory.allowedBytes=200MB",
                 "-search.maxPointsPerTimeseries=11000")  # fmt: skip
        return self.store(name, program, flags, "/health")

    def prometheus(self, name: str, program: str) -> int:
        (self.directory / "prometheus.yml").write_text("storage: {tsdb: {out_of_order_time_window: 30d}}\n")
        flags = (f"--config.file={self.directory}/prometheus.yml", "--web.listen-address=127.0.0.1:{port}",
                 "--web.enable-remote-write-receiver", "--storage.tsdb.path={data}",
                 "--log.level=warn")  # fmt: skip
        return self.store(name, program, flags, "/-/ready")

    def write(self, name: str, series: Sequence[Series]) -> None:
        http(self.ports[name], "/api/v1/write", snappy(write_request(series)), REMOTE_WRITE)
        if name != "hot":
            http(self.ports[name], "/internal/force_flush")

    def wait(self, works: Any, seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return works()
            except (OSError, AssertionError) as problem:
                ended = [process.args for process in self.processes if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    raise RuntimeError(f"{problem}; ended: {ended}; logs in {self.directory}") from problem
                time.sleep(0.05)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- the program

    def configure(self, **changes: Any) -> Path:
        path = self.directory / "querygate.json"
        path.write_text(json.dumps({**configuration(self.directory, self.ports), **changes}))
        return path

    def gate(self, path: Path, jobs: bool = True, defect: str = "") -> None:
        """The program; `defect` is Python that breaks it first, for tests of the tests."""
        launch = f"import sys\nfrom services.querygate import __main__, app, form, plan\n{defect}\n"
        launch += "sys.exit(__main__.main(sys.argv[1:]))"
        self.start("serve", [sys.executable, "-c", launch, "serve", str(path)])
        if jobs:
            self.start("jobs", [sys.executable, "-m", "services.querygate", "jobs", str(path)])
        self.wait(lambda: http(int(json.loads(path.read_text())["ops_listen"].split(":")[1]), "/-/ready"))

    def raw(self, request: bytes) -> Answer:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(60)
            stream.connect(str(self.directory / "query.sock"))
            stream.sendall(request)
            with stream.makefile("rb") as reader:
                return read_answer(reader)

    def send(
        self, method: str, target: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = (),
        identity: str = TENANT,
    ) -> Answer:  # fmt: skip
        lines = [f"{method} {target} HTTP/1.1", "Host: gate", "Connection: close"]
        if identity:
            lines.append(f"X-Sideband-Identity: {identity}")
        lines += [f"{name}: {value}" for name, value in headers]
        if body and not any(name.lower() == "content-type" for name, _ in headers):
            lines.append("Content-Type: application/x-www-form-urlencoded")
        if body or method in ("POST", "PUT", "DELETE"):
            lines.append(f"Content-Length: {len(body)}")
        return self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def ask(self, path: str, identity: str = TENANT, method: str = "GET", **values: Any) -> Answer:
        text = urllib.parse.urlencode({name.replace("match", "match[]"): one for name, one in values.items()})
        if method == "GET":
            return self.send("GET", f"{path}?{text}" if text else path, identity=identity)
        return self.send("POST", path, text.encode(), identity=identity)

    def audit(self) -> list[dict[str, Any]]:
        files = sorted((self.directory / "audit").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def tier(name: str, engine: str, resolution: int, retention: int) -> dict[str, Any]:
    return {"name": name, "engine": engine, "resolution_seconds": resolution, "retention_seconds": retention}


def model() -> dict[str, Any]:
    """As the contract compiles it: a raw tier and two aggregated ones, two tenants."""
    return {
        "tiers": {
            "hot": tier("hot", "prometheus", 5, 7 * DAY),
            "minute": tier("minute", "victoriametrics", 60, 90 * DAY),
            "hour": tier("hour", "victoriametrics", 3600, 730 * DAY),
        },
        "tenants": [
            {"name": "alpha", "certificate": "alpha", "racks": ["rack1"], "rack_regex": "rack1"},
            {"name": "beta", "certificate": "beta", "racks": ["rack2"], "rack_regex": "rack2"},
        ],
        "administrators": [{"name": "ops", "certificate": "ops"}],
        "notify": {"channel_hosts": ["hooks.slack.com", "http://10.0.0.1:8090"]},
        "hosts": {"archiver": {"words": ["archive"]}, "region1": {"words": ["alerts"]}},
    }


def configuration(directory: Path, ports: dict[str, int]) -> dict[str, Any]:
    def url(name: str) -> str:
        return f"http://127.0.0.1:{ports.get(name, 1)}"

    return compile_querygate(
        model(),
        {
            "listen": f"unix:{directory}/query.sock",
            "ops_listen": f"127.0.0.1:{free_port()}",
            "state_directory": str(directory),
            "audit_directory": str(directory / "audit"),
            "degraded_file": f"{directory}/degraded.json",
            "tier_urls": {name: [url(name)] for name in ("hot", "minute", "hour")},
            "log_urls": [url("logs")],
        },
    )
