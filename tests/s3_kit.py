"""A real S3 server for tests: radosgw from the lab's image, in a mount namespace of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import archive_kit as kit
from querygate.kit import free_port

from lab.sblab import images, site
from lab.sblab.paths import IMAGES

# Its own root from the image's layers, thrown away with the namespace.
_START = """
set -eu
mount -t tmpfs archive-test "$PLACE"
mkdir "$PLACE/upper" "$PLACE/work" "$PLACE/root"
mount -t overlay archive-test -o "lowerdir=$LOWER,upperdir=$PLACE/upper,workdir=$PLACE/work" "$PLACE/root"
mount -t proc proc "$PLACE/root/proc"
mount --bind /dev "$PLACE/root/dev"
mkdir -p "$PLACE/root$DATA" "$PLACE/root/etc/ceph"
mount --bind "$STORE" "$PLACE/root$DATA"
cp "$CONF" "$PLACE/root/etc/ceph/ceph.conf"
printf '%s' "$KEY" >"$PLACE/root/etc/ceph/lab-s3.key"
cp "$SCRIPT" "$PLACE/root/usr/local/lib/lab-s3"
chroot "$PLACE/root" sh /usr/local/lib/lab-s3 user
exec chroot "$PLACE/root" radosgw -f $RADOSGW
"""


def missing() -> str:
    """Why there can be none here; "" where there can."""
    layer = IMAGES / f"{site.EXTRA}.layer"
    return "" if (layer / "usr/bin/radosgw").exists() else f"no {layer}: lab/lab up builds it"


@contextmanager
def s3(directory: Path) -> Iterator[str]:
    """The endpoint of a server with the lab's buckets, which goes with all that it keeps."""
    port = free_port()
    place, store = directory / "s3-root", directory / "s3-store"
    place.mkdir()
    store.mkdir()
    (directory / "ceph.conf").write_text(site.ceph_conf(port))
    (directory / "lab-s3").write_text(site.script(port))
    environment = {
        "PATH": os.environ["PATH"],
        "PLACE": str(place),
        "STORE": str(store),
        "LOWER": f"{IMAGES / site.EXTRA}.layer:{images.root('trixie')}",
        "CONF": str(directory / "ceph.conf"),
        "SCRIPT": str(directory / "lab-s3"),
        "KEY": f"{kit.ACCESS}:{kit.SECRET}",
        "DATA": site.DATA,
        "RADOSGW": " ".join(site.RADOSGW),
    }
    with open(directory / "s3.log", "wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _START],
            env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            _ready(process, port, directory / "s3.log")
            for bucket in site.BUCKETS:
                _put(f"http://127.0.0.1:{port}/{bucket}")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no S3 server: {log.read_text()[-2000:]}") from None
            time.sleep(0.1)


def _put(url: str) -> None:
    request = urllib.request.Request(url, method="PUT", headers=kit.sign("PUT", url, b""))
    urllib.request.urlopen(request, timeout=10).close()
