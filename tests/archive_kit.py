"""What the archive's tests share: a job's series in real stores behind the real gateway program, the code's
repository, and a place to keep objects, with faults at its edge."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from services.archiver.config import Config, Remote, parse

START = 1_780_000_020  # a full minute
MODEL = "NVIDIA H100 80GB HBM3"
ACCESS, SECRET = "archive-access", "archive-secret"


class Handler(http.server.BaseHTTPRequestHandler):
    """All methods come to `served`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.served()

    def do_PUT(self) -> None:
        self.served()

    def do_HEAD(self) -> None:
        self.served()

    def do_POST(self) -> None:
        self.served()

    def do_DELETE(self) -> None:
        self.served()

    def served(self) -> None:
        raise NotImplementedError

    def log_message(self, format: str, *arguments: object) -> None:
        return


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed hangs up in the middle: that is the test's purpose."""


@contextmanager
def serving(handler: type[Handler]) -> Iterator[int]:
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


# -- series


def falling(step: int) -> float:
    return round(10.0 / (step + 1), 6)


def job_series(
    steps: int = 40,
    nodes: Sequence[str] = ("node1", "node2"),
    gpus: int = 2,
    start: int = START,
    job: str = "slurm-77",
    tenant: str = "alpha",
    loss: Callable[[int], float] = falling,
    tokens: float = 50_000.0,
    ended: bool = True,
    outage: range = range(0),
) -> list[str]:
    """In the text format, as the region leaves them in the minute tier: a step every 15 seconds on the first
    node, and every minute what is made of GPUs and jobs."""
    who = f'job="{job}",tenant="{tenant}"'
    lines = []
    for step in range(1, steps + 1):
        at = start * 1000 + step * 15_000 + 123
        value = loss(step)
        own = f'{{{who},node="{nodes[0]}",rack="rack1",site="lab"}}'
        if value == value:
            lines.append(f"sideband_train_loss{own} {value!r} {at}")
        else:
            lines.append(f"sideband_train_loss_nonfinite{own} 1 {at}")
        lines.append(f"sideband_train_step{own} {step} {at}")
        lines.append(f"sideband_train_tokens_per_second{own} {tokens + step} {at}")
        lines.append(f"sideband_train_step_seconds{own} 15.0 {at}")
    minutes = steps * 15 // 60 + 1
    for minute in range(1, minutes + 1):
        if minute in outage:
            continue
        at = (start + 60 * minute) * 1000
        for node in nodes:
            place = f'{who},node="{node}",rack="rack1",site="lab"'
            info = f'{place},user="ada",name="train",kind="slurm",start="{start}"'
            lines.append(f"sideband_job_info:1m_max{{{info}}} 1 {at}")
            lines.append(f"sideband_job_gpus:1m_max{{{place}}} {gpus} {at}")
            level = "full" if minute < 4 else "core"
            lines.append(f'sideband_policy_level:1m_max{{job="policy",node="{node}",level="{level}"}} 0 {at}')
            for gpu in range(gpus):
                one = f'{place},gpu="{gpu}",UUID="GPU-{node}-{gpu}",modelName="{MODEL}"'
                lines.append(f"DCGM_FI_DEV_GPU_UTIL:1m_sum_samples{{{one}}} 1080 {at}")
                lines.append(f"DCGM_FI_DEV_GPU_UTIL:1m_count_samples{{{one}}} 12 {at}")
        for name, value in (
            ("sum_samples", 1080 * gpus * len(nodes)),
            ("count_samples", 12 * gpus * len(nodes)),
        ):
            lines.append(f'job:DCGM_FI_DEV_GPU_UTIL:1m_{name}{{{who},site="lab"}} {value} {at}')
    if ended:
        at = (start + 60 * (minutes + 1)) * 1000
        end = start + steps * 15 + 1.5
        for node in nodes:
            place = f'{who},node="{node}",rack="rack1",site="lab"'
            lines.append(f"sideband_job_ended_timestamp_seconds:1m_max{{{place}}} {end} {at}")
    return lines


_LINE = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\} (\S+) (\d+)")


def parsed(lines: Sequence[str]) -> list[tuple[dict[str, str], int, float]]:
    """(labels, milliseconds, value) of lines of the text format."""
    found = []
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match is not None, line
        labels = dict(re.findall(r'(\w+)="([^"]*)"', match.group(2)))
        found.append(({"__name__": match.group(1), **labels}, int(match.group(4)), float(match.group(3))))
    return found


# -- the gateway's front, which says who asks


@contextmanager
def front(unix: Path, identity: str = "archive/lake1") -> Iterator[int]:
    """Before the gateway's program stands HAProxy, which knows the asker by its certificate."""

    class Relay(Handler):
        def served(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            connection = http.client.HTTPConnection("gate", timeout=60)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(unix))
            headers = {"Content-Type": self.headers["Content-Type"], "X-Sideband-Identity": identity}
            connection.request("POST", self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            self.send_response(answer.status)
            for name in ("Content-Type", "Retry-After", "X-Sideband-Tier"):
                if answer.headers[name]:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with serving(Relay) as port:
        yield port


# -- objects


@dataclass
class Faults:
    """What goes wrong at the edge of the storage. `seen` counts requests by method."""

    fail_puts: Callable[[int], bool] = lambda number: False  # answered 500
    cut_puts: Callable[[int], bool] = lambda number: False  # half the body arrives, and is what is kept
    hang_puts: threading.Event | None = None  # the answer waits for it
    seen: dict[str, int] = field(default_factory=dict)
    objects: int = 0

    def count(self, method: str) -> int:
        self.seen[method] = self.seen.get(method, 0) + 1
        return self.seen[method]


@contextmanager
def edge(endpoint: str, faults: Faults) -> Iterator[str]:
    """A relay before a real S3 server, which gets what it gets: a cut upload leaves a half object there."""
    place = urlsplit(endpoint)
    lock = threading.Lock()

    class Relay(Handler):
        def served(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                number = faults.count(self.command)
            if self.command == "PUT":
                if faults.hang_puts is not None:
                    faults.hang_puts.wait(60)
                if faults.fail_puts(number):
                    return self.answer(500, b"<Error><Code>InternalError</Code></Error>", [])
                if faults.cut_puts(number):
                    half = {"Host": f"{place.hostname}:{place.port}"}
                    self.passed(self.path, body[: len(body) // 2], half, signed=True)
                    return self.answer(200, b"", [("ETag", '"00000000000000000000000000000000"')])
            headers = {name: text for name, text in self.headers.items() if name.lower() != "connection"}
            status, data, given = self.passed(self.path, body, headers)
            return self.answer(status, data, given)

        def passed(
            self, path: str, body: bytes, headers: dict[str, str], signed: bool = False
        ) -> tuple[int, bytes, list[tuple[str, str]]]:
            if signed:
                headers = sign(self.command, f"{endpoint}{path}", body)
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
            connection.request(self.command, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            return answer.status, data, answer.getheaders()

        def answer(self, status: int, data: bytes, headers: list[tuple[str, str]]) -> None:
            self.send_response(status)
            known = {name.lower(): text for name, text in headers}
            for name, text in headers:
                if name.lower() not in (
                    "content-length",
                    "transfer-encoding",
                    "connection",
                    "date",
                    "server",
                ):
                    self.send_header(name, text)
            length = known.get("content-length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    with serving(Relay) as port:
        yield f"http://127.0.0.1:{port}"


def sign(method: str, url: str, body: bytes, access: str = ACCESS, secret: str = SECRET) -> dict[str, str]:
    """Headers that an S3 server takes for the archive's own."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method, url, data=body)
    S3SigV4Auth(Credentials(access, secret), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


# -- code


class Code:
    """A tenant's repository: a bare one that is pushed to, and a checkout."""

    def __init__(self, directory: Path, name: str = "alpha") -> None:
        self.bare, self.checkout = directory / f"{name}.git", directory / f"{name}-checkout"
        self.environment = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": str(git_config(directory)),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "--quiet", "--bare", str(self.bare), where=directory)
        self.git("clone", "--quiet", str(self.bare), str(self.checkout), where=directory)
        (self.checkout / "train.py").write_text("print('loss')\n")
        self.git("add", "train.py")
        self.git("commit", "--quiet", "-m", "the model")
        self.git("push", "--quiet", "origin", "HEAD")

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def git(self, *words: str, where: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=where or self.checkout, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def tag(self, name: str, message: str) -> str:
        self.git("tag", "-f", "-a", name, "-m", message)
        self.git("push", "--quiet", "-f", "origin", f"refs/tags/{name}")
        return self.git("rev-parse", f"{name}^{{commit}}")


def git_config(directory: Path) -> Path:
    path = directory / "gitconfig"
    path.write_text(
        "[user]\n\tname = archive\n\temail = archive@example.org\n"
        "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n"
    )
    return path


# -- configuration


def settings(
    directory: Path, gateway: str, endpoint: str, repositories: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    keys = directory / "s3.ini"
    keys.write_text(f"[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
    return {
        "gateways": [gateway],
        "tls": None,
        "tiers": [{"name": "minute", "resolution_seconds": 60, "retention_seconds": 365 * 86_400}],
        "state_directory": str(directory / "state"),
        "remote": {
            "bucket": "experiments", "prefix": "sideband", "endpoint": endpoint, "region": "us-east-1",
            "credentials": str(keys), "ca": "",
        },
        "repositories": [{"tenant": tenant, "url": url} for tenant, url in repositories],
        "git_config": str(git_config(directory)),
        "settle_seconds": 0,
        "memory_bytes": 256 << 20,
        "cache_bytes": 1 << 30,
        "peak_flops": {MODEL: 989e12},
        "price_per_gpu_hour": {"default": 2.5},
        "currency": "EUR",
    }  # fmt: skip


def config(directory: Path, **changes: Any) -> Config:
    return parse({**settings(directory, "http://127.0.0.1:1", "http://127.0.0.1:1", []), **changes})


def parse_remote(endpoint: str) -> Remote:
    return Remote("experiments", "sideband/alpha", endpoint, "us-east-1", "/none", "")


def write_config(directory: Path, value: dict[str, Any]) -> Path:
    path = directory / "archiver.json"
    path.write_text(json.dumps(value))
    return path
