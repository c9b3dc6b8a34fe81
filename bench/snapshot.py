#!/usr/bin/env python3
"""What a host is: every file, unit, user, group, rule, queue, kernel setting and package, as one JSON object.

Runs on the host and needs nothing but Python 3.9: `ssh HOST python3 - < bench/snapshot.py`. What the kernel
and running programs make up as they go (/proc, /sys, /dev, /run, /tmp) is left out, but for our
own part of /run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys

SKIPPED = ("/proc", "/sys", "/dev", "/run", "/tmp")
OURS = ("/run/sideband", "/run/systemd/system", "/run/systemd/network")
# Settings that count something or that the kernel draws anew: no state that anybody set.
VOLATILE = re.compile(
    r"^(fs\.(dentry-state|file-nr|inode-nr|inode-state|aio-nr|quota)|kernel\.(random|ns_last_pid|pty\.nr|"
    r"sched_|perf_|hostname)|net\.netfilter\.nf_conntrack_count|vm\.stat)"
)


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout if done.returncode == 0 else ""


def describe(path: str) -> str:
    status = os.lstat(path)
    owner = f"{stat.S_IMODE(status.st_mode):04o} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"link {os.readlink(path)}"
    if stat.S_ISDIR(status.st_mode):
        return f"directory {owner}"
    if not stat.S_ISREG(status.st_mode):
        return f"special {owner}"
    with open(path, "rb") as file:
        return f"file {owner} {hashlib.sha256(file.read()).hexdigest()}"


def files(top: str = "/") -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(directory: str) -> None:
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            if path in SKIPPED:
                continue
            try:
                found[path] = describe(path)
                if os.path.isdir(path) and not os.path.islink(path):
                    walk(path)
            except (FileNotFoundError, PermissionError):
                continue  # gone meanwhile, or a mount that even root may not read

    for root in (top, *OURS):
        if os.path.isdir(root):
            walk(root)
    return found


def units() -> dict[str, str]:
    listed = run("systemctl", "list-unit-files", "--no-legend", "--no-pager")
    found = {
        f"file {line.split()[0]}": line.split()[1] for line in listed.splitlines() if len(line.split()) > 1
    }
    running = run(
        "systemctl", "list-units", "--type=service,socket,timer,path,slice", "--no-legend", "--plain"
    )
    for line in running.splitlines():
        words = line.split()
        # Sessions come and go with the ones who look.
        if len(words) > 3 and not words[0].startswith(("user-", "user@", "session-", "run-", "ssh@")):
            found[f"unit {words[0]}"] = words[3]
    return found


def settings() -> dict[str, str]:
    found = {}
    for line in run("sysctl", "-a", "-e").splitlines() or _proc_sys():
        name, _, value = line.partition(" = ")
        if not VOLATILE.match(name):
            found[name] = value
    return found


def _proc_sys() -> list[str]:
    lines = []
    for directory, _, names in os.walk("/proc/sys"):
        for name in names:
            path = os.path.join(directory, name)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    value = file.read().strip()
            except OSError:
                continue
            lines.append(f"{os.path.relpath(path, '/proc/sys').replace('/', '.')} = {value}")
    return lines


def rules() -> dict[str, str]:
    """Tables with their rules; handles and counts are the kernel's own."""
    text = re.sub(r"packets \d+ bytes \d+", "packets 0 bytes 0", run("nft", "list", "ruleset"))
    found: dict[str, str] = {}
    for block in re.split(r"^(?=table )", text, flags=re.MULTILINE):
        if block.strip():
            found[block.split("{")[0].strip()] = block
    return found


def queues() -> dict[str, str]:
    found = {}
    for line in run("tc", "qdisc", "show").splitlines():
        match = re.match(r"qdisc (\S+) (\S+) dev (\S+) (.*)", line)
        # Handle 0: is the kernel's own default, which any link has from the first time that it was up.
        if match and match.group(2) != "0:":
            found[f"{match.group(3)} {match.group(2)}"] = f"{match.group(1)} {match.group(4)}"
    return found


def names(database: str) -> dict[str, str]:
    return {line.split(":")[0]: line for line in run("getent", database).splitlines()}


def addresses() -> dict[str, str]:
    found = {}
    for line in run("ip", "-o", "address", "show").splitlines():
        words = line.split()
        found[f"{words[1]} {words[3]}"] = words[2]
    return found


def packages() -> dict[str, str]:
    text = run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\n")
    return {line.split()[0]: line for line in text.splitlines() if line.strip()}


def main() -> None:
    whole = {
        "files": files(),
        "units": units(),
        "users": names("passwd"),
        "groups": names("group"),
        "rules": rules(),
        "queues": queues(),
        "settings": settings(),
        "addresses": addresses(),
        "packages": packages(),
    }
    json.dump(whole, sys.stdout)


if __name__ == "__main__":
    main()
