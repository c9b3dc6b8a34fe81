"""The data path of one rack, from its real configuration, by the real daemons, in one namespace and one root.

The roles are rendered by Ansible against the lab's contract; a stand-in for the role `host` writes down what
each host would get. One rack, the region, the lake and the gateway then run side by side: their ports and
paths do not meet."""

from __future__ import annotations

import base64
import json
import os
import shlex
import socket
import subprocess
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services import wheels

from .client import Client, read_answer, socket_in

PROJECT = Path(__file__).resolve().parents[2]
NAMESPACE = f"sideband-front-{os.getpid()}"  # a room of its own
HOSTS = ("rack1", "region1", "lake1", "gateway1")


def run(*argv: str, **kwargs: Any) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, **kwargs)
    if done.returncode:
        raise RuntimeError(
            f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
    return done.stdout


def render(directory: Path) -> None:
    """Every host's fragment as JSON below `directory`, with an authority of its own."""
    environment = dict(os.environ)
    environment["ANSIBLE_CONFIG"] = str(PROJECT / "ansible.cfg")
    environment["ANSIBLE_ROLES_PATH"] = f"{PROJECT}/tests/front/roles:{PROJECT}/roles"
    run(
        str(PROJECT / ".venv/bin/ansible-playbook"), "tests/front/render.yml",
        "-e", f"front_output={directory}",
        "-e", f"sideband_pki_directory={directory}/pki",
        "-e", f"sideband_rack_secrets_directory={directory}/secrets",
        cwd=PROJECT, env=environment,
    )  # fmt: skip


def unpack_packages(root: Path) -> None:
    """querygate's Python packages, as the mirror would hand them over."""
    mirror = PROJECT / ".cache/mirror"
    held = json.loads((mirror / "manifest.json").read_text()).get("archives", {})
    for name, entry in wheels.ensure(mirror / "archives", held).items():
        place = root / "opt/sideband" / name
        place.mkdir(parents=True)
        run("tar", "-xf", str(mirror / "archives" / entry["file"]), "-C", str(place), "--no-same-owner")


def make_root(directory: Path) -> Path:
    """A Debian 13 root with the data path's packages unpacked, from the lab's image and mirror."""
    root = directory / "root"
    root.mkdir()
    images = sorted((PROJECT / ".cache/images").glob("trixie-*.tar"), key=lambda path: path.stat().st_mtime)
    run("tar", "-xf", str(images[-1]), "-C", str(root), "--exclude=./dev/*")
    for package in sorted((PROJECT / ".cache/mirror/trixie").glob("*.deb")):
        if package.name.startswith(("fonts-", "javascript-", "libjs-", "nginx", "ifupdown2_")):
            continue
        archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
        run("tar", "-x", "--keep-directory-symlink", "-C", str(root), stdin=archive.stdout)
    unpack_packages(root)
    for device, minor in (("null", 3), ("random", 8), ("urandom", 9)):
        path = root / "dev" / device
        if not path.exists():
            os.mknod(path, 0o666 | 0o020000, os.makedev(1, minor))
            path.chmod(0o666)
    with open(root / "etc/passwd", "a") as users, open(root / "etc/group", "a") as groups:
        users.write("sideband:x:890:890::/nonexistent:/usr/sbin/nologin\n")
        users.write("sideband-gateway:x:892:892::/nonexistent:/usr/sbin/nologin\n")
        groups.write("sideband:x:890:\nsideband-accept:x:891:sideband\nsideband-gateway:x:892:\n")
    return root


USERS = {"root": 0, "sideband": 890, "sideband-accept": 891, "sideband-gateway": 892}


@dataclass
class Bench:
    directory: Path
    root: Path
    fragments: dict[str, dict[str, Any]] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def make(cls, directory: Path) -> Bench:
        render(directory)
        bench = cls(directory, make_root(directory))
        for host in HOSTS:
            content = json.loads((directory / f"{host}.json").read_text())
            bench.fragments[host] = content["fragment"]
            bench.lay_out(content)
        # A minute is long for a test: same outputs, shorter interval.
        minute = bench.root / "etc/sideband/region/minute.yml"
        minute.write_text(minute.read_text().replace("interval: 1m", "interval: 5s"))
        return bench

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    def lay_out(self, content: dict[str, Any]) -> None:
        fragment = content["fragment"]
        for item in fragment["directories"]:
            self.place(item, None)
        for item in content["secrets"] + fragment["files"]:
            data = item["content"].encode() if "content" in item else base64.b64decode(item["content_base64"])
            self.place(item, data)

    def place(self, item: dict[str, Any], data: bytes | None) -> None:
        path = self.root / item["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(data)
        os.chown(path, USERS[item.get("owner", "root")], USERS[item.get("group", "root")])
        path.chmod(int(item["mode"], 8))

    def check(self) -> dict[str, str]:
        """Every file's own check, by its daemon: path -> what it said ("" is well)."""
        said = {}
        for fragment in self.fragments.values():
            for item in fragment["files"]:
                if item.get("check"):
                    words = shlex.split(item["check"].replace("%s", item["path"]))
                    done = subprocess.run(["chroot", str(self.root), *words], capture_output=True, text=True)
                    said[item["path"]] = (
                        "" if done.returncode == 0 else f"{done.returncode}: {done.stdout}{done.stderr}"
                    )
        return said

    def network(self) -> None:
        run("ip", "netns", "add", NAMESPACE)
        run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
        for address in ("10.21.0.21/24", "10.21.0.11/24", "10.30.0.21/24", "10.30.0.31/24", "10.30.0.41/24",
                        "10.30.0.51/24", "10.40.0.51/24", "fd00:5b:21::21/64", "fd00:5b:30::31/64",
                        "fd00:5b:30::41/64", "fd00:5b:40::51/64"):  # fmt: skip
            run(
                "ip",
                "-n",
                NAMESPACE,
                "address",
                "add",
                address,
                "dev",
                "lo",
                *(["nodad"] if ":" in address else []),
            )

    def start(self, unit: str) -> None:
        text = (self.root / "etc/systemd/system" / unit).read_text().replace("\\\n", " ")
        setting = dict(
            line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
        )
        environment = {"PATH": "/usr/sbin:/usr/bin"}
        if "EnvironmentFile" in setting:
            secret = (self.root / setting["EnvironmentFile"].lstrip("/")).read_text().strip()
            environment.update([secret.split("=", 1)])
        group = USERS[setting["Group"]]
        if "RuntimeDirectory" in setting:
            runtime = self.root / "run" / setting["RuntimeDirectory"]
            runtime.mkdir(parents=True, exist_ok=True)
            os.chown(runtime, USERS[setting["User"]], group)
        log = os.open(self.directory / f"{unit}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.processes[unit] = subprocess.Popen(
            ["ip", "netns", "exec", NAMESPACE, "chroot", f"--userspec={USERS[setting['User']]}:{group}",
             "--groups=890,891,892", str(self.root),
             *shlex.split(setting["ExecStart"])],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        os.close(log)

    def stop(self, unit: str) -> None:
        process = self.processes.pop(unit)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_all(self) -> None:
        self.network()
        for unit in ("sideband-hot", "sideband-minute", "sideband-lake-front", "sideband-region-agent",
                     "sideband-region-front", "sideband-rack-agent", "sideband-rack-front",
                     "sideband-gateway-query", "sideband-gateway-jobs",
                     "sideband-gateway-front"):  # fmt: skip
            self.start(f"{unit}.service")
        for port in (9090, 8532, 8531, 8530, 8533, 8541):
            self.wait_for(("127.0.0.1", port))
        self.hot_ready()
        for address in (
            ("10.21.0.21", 8427),
            ("10.30.0.31", 8428),
            ("10.30.0.41", 8429),
            ("10.40.0.51", 8443),
        ):
            self.wait_for(address)

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
                        f"nothing answers at {address} ({problem}); ended: {dead}\n{logs}"
                    ) from problem
                time.sleep(0.1)

    def hot_ready(self, seconds: float = 60) -> None:
        """The hot tier opens its port before it has read its log again; until then it answers 503."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.plain(9090, "/-/ready")
                return
            except (OSError, RuntimeError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def stop_all(self) -> None:
        for unit in list(self.processes):
            self.stop(unit)
        subprocess.run(["ip", "netns", "delete", NAMESPACE], capture_output=True)

    def client(self, identity: str, address: str = "10.21.0.21", port: int = 8427) -> Client:
        return Client(NAMESPACE, self.pki, identity, (address, port))

    def plain(self, port: int, path: str, method: str = "GET", body: bytes = b"") -> bytes:
        """HTTP on the loopback of the host that all daemons share."""
        with socket_in(NAMESPACE, ("127.0.0.1", port), 10) as stream:
            head = f"{method} {path} HTTP/1.1\r\nHost: local\r\nConnection: close\r\n"
            head += f"Content-Length: {len(body)}\r\n\r\n"
            stream.sendall(head.encode() + body)
            with stream.makefile("rb") as reader:
                answer = read_answer(reader)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.text[:500]}")
        return answer.body

    def hot(self, selector: str) -> list[dict[str, Any]]:
        """Every sample of the last hour in the hot tier, per series."""
        path = "/api/v1/query?query=" + urllib.parse.quote(f"{selector}[1h]")
        return json.loads(self.plain(9090, path))["data"]["result"]

    def hot_when(self, selector: str, count: int = 1, seconds: float = 60) -> list[dict[str, Any]]:
        deadline = time.monotonic() + seconds
        while len(found := self.hot(selector)) < count and time.monotonic() < deadline:
            time.sleep(0.3)
        return found

    def admin(self, command: str) -> str:
        """The rack front's runtime socket."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(self.root / "run/sideband/rack/admin.sock"))
            stream.sendall(command.encode() + b"\n")
            return b"".join(iter(lambda: stream.recv(65536), b"")).decode()
