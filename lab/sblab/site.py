"""What a site has of its own and sideband only uses: an S3 server and the tenants' Git repositories, on the
host whose `extra` is `site`. Both stay inside that host: on loopback, and on its disk.

The S3 server is Ceph's radosgw alone, on SQLite (dbstore), with no cluster behind it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from .paths import STATE
from .say import run

EXTRA = "site"
KEY = STATE / "s3.key"  # ACCESS:SECRET; the inventory reads it
PORT = 7480
BUCKETS = ("experiments", "logs")
REPOSITORIES = ("alpha", "beta")
DATA = "/var/lib/lab-s3"
RADOSGW = ("-n", "client.lab", "--no-mon-config")


def key(path: Path = KEY) -> str:
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(10)}:{secrets.token_hex(20)}\n")
    return path.read_text(encoding="ascii").strip()


def ceph_conf(port: int = PORT, data: str = DATA) -> str:
    return f"""[global]
mon host = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {data}
log file =
log to stderr = true
err to stderr = true
[client]
admin socket =
rgw backend store = dbstore
rgw config store = dbstore
dbstore db dir = {data}
dbstore config uri = file:{data}/config.db
rgw data = {data}
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw thread pool size = 16
"""


def script(port: int = PORT) -> str:
    """`user` before the server starts, `buckets` once it answers. The key is in a file beside.

    radosgw-admin may hang when it has done its work (a thread of dbstore's misses the word to stop), so what
    it did is looked at, not how it ended.
    """
    return f"""#!/bin/sh
# Written by the lab: the user and the buckets of the site's S3 server.
set -eu
key=$(cat /etc/ceph/lab-s3.key)
admin() {{ timeout -s KILL 5 radosgw-admin {" ".join(RADOSGW)} user "$@" --uid site 2>/dev/null || true; }}
case $1 in
user)
    for try in 1 2 3 4 5; do
        if admin info | grep -q '"user_id": "site"'; then exit 0; fi
        admin create --display-name site --access-key "${{key%%:*}}" --secret-key "${{key#*:}}" >/dev/null
    done
    exit 1
    ;;
buckets)
    for bucket in {" ".join(BUCKETS)}; do
        printf 'user = "%s"\n' "$key" |
            curl -sS -K - --fail --retry 30 --retry-connrefused --retry-delay 1 -o /dev/null \
                --aws-sigv4 aws:amz:us-east-1:s3 -X PUT "http://127.0.0.1:{port}/$bucket"
    done
    ;;
esac
"""


def unit() -> str:
    return f"""[Unit]
Description=the lab's S3 server, as a site would have one

[Service]
User=ceph
Group=ceph
StateDirectory={Path(DATA).name}
ExecStartPre=/usr/local/lib/lab-s3 user
ExecStart=/usr/bin/radosgw -f {" ".join(RADOSGW)}
ExecStartPost=/usr/local/lib/lab-s3 buckets
Restart=on-failure
Nice=10
TimeoutStopSec=5

[Install]
WantedBy=multi-user.target
"""


def install(root: Path) -> None:
    """Into a host's root before it boots. Its packages came with the layer."""
    passwd = (root / "etc/passwd").read_text().splitlines()
    owner = next(int(row.split(":")[2]) for row in passwd if row.startswith("ceph:"))
    write(root / "etc/ceph/ceph.conf", ceph_conf(), 0o644)
    write(root / "etc/ceph/lab-s3.key", key() + "\n", 0o600)
    os.chown(root / "etc/ceph/lab-s3.key", owner, owner)
    write(root / "usr/local/lib/lab-s3", script(), 0o755)
    write(root / "etc/systemd/system/lab-s3.service", unit(), 0o644)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "lab-s3.service").symlink_to("/etc/systemd/system/lab-s3.service")
    # Units that the packages bring: one without an instance, one for disks that there are none of.
    for name in ("ceph-radosgw.target", "rbdmap.service"):
        (wants / name).unlink(missing_ok=True)
    for name in REPOSITORIES:
        repository(root / f"srv/git/{name}.git")


def repository(path: Path) -> None:
    """A bare one that any user of the host may push to: who may is a site's own affair."""
    run(["git", "init", "-q", "--bare", "--shared=0777", "--initial-branch=main", path])
    run(["chmod", "-R", "a+rwX", path])


def write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
