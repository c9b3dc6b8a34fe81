"""Packages that Debian has as source only, built once and kept in `.cache/built/`.

VictoriaLogs is in the source package of VictoriaMetrics. It is built in a root of its own, without cgo, so
that one program runs on every system; the same source gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from . import images, sources
from .paths import CACHE
from .say import line, run

BUILT = CACHE / "built"
RECIPE = 1
SUITE = "trixie"
SOURCE, NAME = "victoriametrics", "victoria-logs"
# $ROOT is a fresh root of the suite, $OUT a directory for the package.
_BUILD = r"""
set -eu
mount -t proc proc "$ROOT/proc"
mount --bind /dev "$ROOT/dev"
cat >"$ROOT/build.sh" <<'END'
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
apt="apt-get -qq -y --no-install-recommends -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0"
$apt update
$apt install dpkg-dev
$apt build-dep "$SOURCE"
mkdir -p /build && cd /build
apt-get -qq -o APT::Sandbox::User=root source --download-only "$SOURCE"
home=/build/path/usr/share/gocode/src/github.com/VictoriaMetrics
mkdir -p "$home"
dpkg-source --no-check -x ./*.dsc "$home/VictoriaMetrics"
# What the packages have of Go's libraries, beside the source in one path.
cp -rsn /usr/share/gocode/src/. /build/path/usr/share/gocode/src/
version=$(dpkg-parsechangelog -l "$home/VictoriaMetrics/debian/changelog" -S Version)
cd "$home/VictoriaMetrics"
export GO111MODULE=off GOPATH=/build/path/usr/share/gocode GOCACHE=/build/cache
export GOFLAGS=-trimpath CGO_ENABLED=0
tree=/build/tree
mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/usr/share/doc/$NAME"
about=github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version
flags="-s -w -buildid= -X $about=victoria-logs-$version"
go build -ldflags "$flags" -o "$tree/usr/bin/$NAME" ./app/victoria-logs
cp debian/copyright "$tree/usr/share/doc/$NAME/copyright"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: $NAME
Version: $version
Architecture: amd64
Maintainer: sideband
Description: VictoriaLogs, built from Debian's source of VictoriaMetrics
CONTROL
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -S Timestamp)
export SOURCE_DATE_EPOCH
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$tree" /build/
END
chroot "$ROOT" env SOURCE="$SOURCE" NAME="$NAME" sh /build.sh
cp "$ROOT"/build/*.deb "$OUT/"
"""


def digest(suite: str) -> str:
    """What a suite's mirror holds of it; empty where it holds none."""
    if suite != SUITE:
        return ""
    return hashlib.sha256(json.dumps([RECIPE, _BUILD, SOURCE, NAME]).encode()).hexdigest()[:12]


def packages(suite: str) -> list[Path]:
    """The packages to lay into a suite's mirror, built where they are not there yet."""
    if suite != SUITE:
        return []
    kept = BUILT / digest(suite)
    if not list(kept.glob("*.deb")):
        _build(kept)
    return sorted(kept.glob("*.deb"))


def _build(kept: Path) -> None:
    line(f"mirror {SUITE}: building {NAME} from Debian's source, once; some minutes")
    room = BUILT / ".room"
    shutil.rmtree(room, ignore_errors=True)
    root, out = room / "root", room / "out"
    for path in (root, out):
        path.mkdir(parents=True)
    run(["tar", "-xf", images.tarball(SUITE), "-C", root, "--numeric-owner"])
    lines = sources.lines(SUITE)
    both = [*lines, *(f"deb-src {row.removeprefix('deb ')}" for row in lines)]
    for path in (root / "etc/apt/sources.list.d").glob("*"):
        path.unlink()
    (root / "etc/apt/sources.list").write_text("\n".join(both) + "\n")
    (root / "etc/apt/apt.conf.d/90reach").write_text(_reach())
    if Path("/etc/resolv.conf").exists():
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    # A mount namespace of its own: an interrupted build leaves no mount behind.
    run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BUILD],
        env={**os.environ, "ROOT": str(root), "OUT": str(out), "SOURCE": SOURCE, "NAME": NAME},
        hint="see that this machine's own Debian source answers (apt-get update), then again",
    )
    shutil.rmtree(kept, ignore_errors=True)
    out.rename(kept)
    for old in BUILT.iterdir():
        if old != kept:
            shutil.rmtree(old, ignore_errors=True)


def _reach() -> str:
    """How this machine's apt reaches its sources."""
    rows = []
    for row in run(["apt-config", "dump", "--format", "%F %v%n", "Acquire"]).splitlines():
        name, _, value = row.partition(" ")
        if value and not name.endswith("::"):
            rows.append(f'{name} "{value}";\n')
    return "".join(rows)
