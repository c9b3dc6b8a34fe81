"""One spare host as a researcher's machine: the checkout and a Python environment of its own are put on it,
and the plays run there, over a local connection. What `make venv` fetches from a package index is fetched
here, for the spare host's Python, because it has no way out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.spare_site import ROOT, BenchError, inside, lab, run
from services import wheels

# Where a person would clone to; removed again like a person would.
PLACE = "/root/sideband"
PACKAGES = ("ansible-core", "cryptography", "jsonschema", "nvidia-ml-py", "PyYAML")
COLLECTIONS = ("community/crypto",)
PYTHONS = {"trixie": "3.13", "bookworm": "3.11"}
# What a researcher may have on a machine before we come: services on ports where ours would usually be, and
# rules of their own. Each answers its name.
THEIRS = {"exporter 9100": "ok", "prometheus 9090": "ok", "table": "ok"}
WITHOUT_GATEWAY = json.dumps({"sideband_components": ["node", "rack", "region", "lake"]})
THEIR_UNIT = """[Service]
ExecStart=/usr/bin/python3 -m http.server {port}
WorkingDirectory=/srv
[Install]
WantedBy=multi-user.target
"""
THEIR_TABLE = "table inet theirs { chain input { type filter hook input priority 0; tcp dport 9 drop; }; }"
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64")


def environment(suite: str) -> Path:
    """The locked packages that plays need, for the suite's Python; kept in .cache/ as long as the lock."""
    place = ROOT / f".cache/python-{suite}"
    stamp, lock = place / ".lock", (ROOT / "requirements.lock").read_text()
    if stamp.is_file() and stamp.read_text() == lock:
        return place
    shutil.rmtree(place, ignore_errors=True)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--target", str(place), "--python-version", PYTHONS[suite], "--implementation", "cp",
            "--only-binary=:all:", *platforms, "-c", "requirements.lock", *PACKAGES,
        ]
    )  # fmt: skip
    here = next((ROOT / ".venv/lib").glob("python3*/site-packages/ansible_collections"))
    for name in COLLECTIONS:
        shutil.copytree(here / name, place / "ansible_collections" / name)
    stamp.write_text(lock)
    return place


def _send(host: str, directory: Path, where: str, names: list[str]) -> None:
    """A part of a tree, through a pipe."""
    inside(host, "mkdir", "-p", where)
    pack = ["tar", "-C", str(directory), "--null", "-T", "-", "-c"]
    unpack = [str(ROOT / "lab/lab"), "exec", host, "tar", "-C", where, "-x", "--no-same-owner"]
    packed = subprocess.run(pack, input="\0".join(names).encode(), capture_output=True, check=True).stdout
    done = subprocess.run(unpack, input=packed, capture_output=True, check=False, timeout=300)
    if done.returncode != 0:
        raise BenchError(f"{host}: {where} was not written: {done.stderr.decode()[-500:]}")


def checkout(host: str, suite: str) -> None:
    """What `git clone` and `make venv` leave."""
    listed = run(["git", "ls-files", "-co", "--exclude-standard", "-z"]).split("\0")
    _send(host, ROOT, PLACE, [name for name in listed if name and (ROOT / name).exists()])
    _packages(host)
    inside(host, "python3", "-m", "venv", "--without-pip", f"{PLACE}/.venv")
    _send(host, environment(suite), f"{PLACE}/.venv/lib/python{PYTHONS[suite]}/site-packages", ["."])
    for name in ("ansible-playbook", "ansible-inventory"):
        start = "import sys; from ansible.cli.{0} import main; sys.exit(main())"
        text = f"#!{PLACE}/.venv/bin/python\n{start.format(name.removeprefix('ansible-'))}\n"
        inside(
            host, "sh", "-c", f"cat > {PLACE}/.venv/bin/{name}; chmod 755 {PLACE}/.venv/bin/{name}", text=text
        )


def _packages(host: str) -> None:
    """What services/wheels.py leaves."""
    mirror = ROOT / ".cache/mirror"
    held = json.loads((mirror / "manifest.json").read_text())["archives"]
    entries = {one.name: held[one.name] for one in wheels.COMPONENTS}
    place = f"{PLACE}/.cache/mirror"
    _send(host, mirror / "archives", f"{place}/archives", [entry["file"] for entry in entries.values()])
    inside(host, "sh", "-c", f"cat > {place}/manifest.json", text=json.dumps({"archives": entries}))


def leave(host: str) -> None:
    inside(host, "rm", "-r", PLACE)


def play(host: str, book: str, *options: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """A play on the host itself, as a person types it there."""
    words = [str(ROOT / "lab/lab"), "exec", host, "env", "-C", PLACE, "ANSIBLE_NOCOLOR=1", "LANG=C.UTF-8"]
    words += [f"PATH={PLACE}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin", f"ANSIBLE_CONFIG={PLACE}/ansible.cfg"]
    words += ["ansible-playbook", "-i", "inventories/single", f"playbooks/{book}.yml", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    if code is not None and done.returncode != code:
        raise BenchError(
            f"{host}: {book} {' '.join(options)}: ended with {done.returncode}, wanted {code}\n"
            f"{(done.stdout + done.stderr)[-4000:]}"
        )
    return done


@contextmanager
def machine(name: str, suite: str) -> Iterator[str]:
    """A fresh spare host; its only package source is the one that every host of the lab starts with."""
    subprocess.run([str(ROOT / "lab/lab"), "spare", "down", name], capture_output=True, check=False)
    lab("spare", "up", name, "--suite", suite)
    try:
        yield name
    finally:
        lab("spare", "down", name)


def researcher(host: str) -> None:
    """Set up what THEIRS says. The system's Python is compiled first, as its packages do on a whole system: a
    first import would write it else, whoever imports."""
    compiled = 'import compileall, sysconfig; compileall.compile_dir(sysconfig.get_path("stdlib"), quiet=2)'
    inside(host, "python3", "-c", compiled)
    for place in THEIRS:
        unit, _, port = place.partition(" ")
        if port:
            text = THEIR_UNIT.format(port=port)
            path = f"/etc/systemd/system/their-{unit}.service"
            inside(host, "sh", "-c", f"cat > {path}; systemctl enable -q --now their-{unit}", text=text)
    inside(host, "nft", "-f", "-", text=THEIR_TABLE)


def researchers_services(host: str) -> dict[str, str]:
    """THEIRS, as it is now."""
    program = (
        "import json, subprocess, urllib.request\n"
        "found = {}\n"
        "for name, port in (('exporter', 9100), ('prometheus', 9090)):\n"
        "    try:\n"
        "        answer = urllib.request.urlopen(f'http://127.0.0.1:{port}/', timeout=5)\n"
        "        found[f'{name} {port}'] = 'ok' if answer.status == 200 else str(answer.status)\n"
        "    except OSError as error:\n"
        "        found[f'{name} {port}'] = str(error)\n"
        "table = subprocess.run(['nft', 'list', 'table', 'inet', 'theirs'], capture_output=True, text=True)\n"
        "found['table'] = 'ok' if 'tcp dport 9 drop' in table.stdout else table.stderr\n"
        "print(json.dumps(found))\n"
    )
    found: dict[str, str] = json.loads(inside(host, "python3", "-", text=program))
    return found
