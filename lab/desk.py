#!/usr/bin/env python3
"""Sets up user1, a desk on the query plane: the certificates of people and the command `ask`.

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


def ask_script(address: str, port: int = 8443) -> str:
    """tools/ask, told where the gateway is and where the certificates lie."""
    return f"""#!/bin/sh
# ask [-t TENANT | -a ADMINISTRATOR] [-r MINUTES | -l] [-j] QUERY
export SIDEBAND_PKI=/root/people SIDEBAND_GATEWAY="${{SIDEBAND_GATEWAY:-{address}:{port}}}"
exec /usr/local/lib/ask "$@"
"""


def files(pki: Path = PKI) -> dict[str, bytes]:
    """What the desk gets, by its path under /root and /usr/local/bin."""
    found = {}
    for kind in ("tenant", "administrator"):
        for key in sorted(pki.glob(f"{kind}-*.key")):
            found[f"root/people/{key.name}"] = key.read_bytes()
            found[f"root/people/{key.stem}.crt"] = key.with_suffix(".crt").read_bytes()
    if not found:
        raise LabError(f"no certificates of people in {pki}", "ansible-playbook playbooks/site.yml")
    found["root/people/ca.crt"] = (pki / "ca.crt").read_bytes()
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
    """Puts people's certificates and `ask` on the desk; returns whose."""
    lab = topology.load()
    query = lab.host(GATEWAY).link("query")
    script = ask_script(query.ipv4.split("/")[0])
    contents = files()
    # Of an earlier site nothing stays: its authority is another.
    command = "rm -rf /root/people && mkdir -m 700 /root/people && tar -x -C / --no-same-owner"
    done = subprocess.run(
        keeper.inside(lab.host(DESK), ["sh", "-c", command]),
        input=pack(
            contents,
            {
                "usr/local/bin/ask": script.encode(),
                "usr/local/lib/ask": (CHECKOUT / "tools/ask").read_bytes(),
            },
        ),
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
    print(f"desk: {DESK} asks for {', '.join(names)}: lab/lab exec {DESK} ask -t alpha 'node_load1:1m_max'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
