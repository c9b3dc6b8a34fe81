#!/usr/bin/env python3
"""Sets up user1, a tenant's desk: the tenants' certificates and the command `ask`.

lab/lab exec user1 ask -t alpha 'node_load1:1m_max'
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.sblab import keeper, topology
from lab.sblab.paths import CHECKOUT
from lab.sblab.say import LabError

DESK = "user1"
GATEWAY = "gateway1"
PKI = CHECKOUT / ".sideband/lab/pki"


def ask_script(address4: str, address6: str, port: int = 8443) -> str:
    """A tenant's way in: GET over TLS with the tenant's certificate, nothing else."""
    return f"""#!/bin/sh
# ask -t TENANT [-6] [-r MINUTES] QUERY     asks the gateway as a tenant; -r asks for a range up to now
set -eu
tenant= host={address4} minutes=
while getopts 't:6r:' option; do
    case $option in
        t) tenant=$OPTARG ;;
        6) host='[{address6}]' ;;
        r) minutes=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ -z "$tenant" ] || [ $# -ne 1 ]; then
    known=$(ls /root/tenants | sed -n 's/[.]key$//p' | xargs)
    echo "ask -t TENANT [-6] [-r MINUTES] QUERY; tenants: $known" >&2
    exit 2
fi
query=$1 url=https://$host:{port}/api/v1/query
set --
if [ -n "$minutes" ]; then
    now=$(date +%s)
    url=${{url}}_range
    set -- --data "start=$((now - minutes * 60))" --data "end=$now" --data step=60
fi
exec curl --silent --show-error --fail-with-body --max-time 20 --get --data-urlencode "query=$query" "$@" \\
    --cacert /root/tenants/ca.crt --cert "/root/tenants/$tenant.crt" --key "/root/tenants/$tenant.key" "$url"
"""


def files(pki: Path = PKI) -> dict[str, bytes]:
    """What the desk gets, by its path under /root and /usr/local/bin."""
    found = {}
    for key in sorted(pki.glob("tenant-*.key")):
        name = key.stem.removeprefix("tenant-")
        found[f"root/tenants/{name}.key"] = key.read_bytes()
        found[f"root/tenants/{name}.crt"] = key.with_suffix(".crt").read_bytes()
    if not found:
        raise LabError(f"no tenant certificates in {pki}", "ansible-playbook playbooks/site.yml")
    found["root/tenants/ca.crt"] = (pki / "ca.crt").read_bytes()
    return found


def pack(contents: dict[str, bytes], programs: dict[str, bytes]) -> bytes:
    """A tar archive in memory: keys go over a pipe, never through an argument or a file in between."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for mode, items in ((0o600, contents), (0o755, programs)):
            for path, data in items.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def install() -> list[str]:
    """Puts tenants and `ask` on the desk; returns the tenants' names."""
    lab = topology.load()
    query = lab.host(GATEWAY).link("query")
    script = ask_script(query.ipv4.split("/")[0], query.ipv6.split("/")[0])
    contents = files()
    # Of an earlier site nothing stays: its authority is another.
    command = "rm -rf /root/tenants && mkdir -m 700 /root/tenants && tar -x -C / --no-same-owner"
    done = subprocess.run(
        keeper.inside(lab.host(DESK), ["sh", "-c", command]),
        input=pack(contents, {"usr/local/bin/ask": script.encode()}),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(
            f"{DESK} took no certificates: {done.stderr.decode(errors='replace').strip()}", "lab/lab status"
        )
    return [Path(path).stem for path in contents if path.endswith(".key")]


def main() -> int:
    try:
        names = install()
    except LabError as error:
        print(f"desk: {error.problem}\ndesk: next: {error.hint}", file=sys.stderr)
        return 1
    print(
        f"desk: {DESK} asks for {', '.join(names)}: lab/lab exec {DESK} ask -t {names[0]} 'node_load1:1m_max'"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
