"""The lab's command line."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from . import faults, images, lifecycle, mirror
from .say import LabError, line, phase
from .topology import load


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab", description="The test bed: real hosts and a real switch on one machine."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="build and start the lab; on a running lab, nothing")
    commands.add_parser("down", help="stop it; the next start begins with bare hosts")
    status = commands.add_parser("status", help="which hosts answer, what is broken")
    status.add_argument("--json", action="store_true")
    execute = commands.add_parser("exec", help="run a command in a host")
    execute.add_argument("host")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD")
    for verb, text in (("break", "cut a link, a host's power, or kill a process"), ("heal", "undo a break")):
        command = commands.add_parser(verb, help=text)
        kinds = command.add_subparsers(dest="kind", required=True, metavar="KIND")
        link = kinds.add_parser("link", help="HOST DEVICE, or a switch port as vec2")
        link.add_argument("names", nargs="+")
        host = kinds.add_parser("host")
        host.add_argument("name")
        process = kinds.add_parser("process", help="HOST UNIT")
        process.add_argument("name")
        process.add_argument("unit")
        if verb == "break":
            process.add_argument(
                "--hang", action="store_true", help="stop it where it stands instead of killing it"
            )
    commands.add_parser("images", help="build the root images")
    commands.add_parser("mirror", help="build the offline package mirror")
    commands.add_parser("clean", help="remove the lab and its images; keep .cache")
    commands.add_parser("distclean", help="remove .cache too")
    spare = commands.add_parser("spare", help="one more bare host on the management bridge")
    spare.add_argument("verb", choices=("up", "down"))
    spare.add_argument("name")
    spare.add_argument("--suite", default="trixie")
    commands.add_parser("rewire").add_argument("name")
    return parser


def _status(as_json: bool) -> int:
    found = lifecycle.status()
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        print(
            f"lab: {'up' if found['up'] else 'not up'}"
            + (f", from {found['checkout']}" if found["checkout"] else "")
        )
        for name, host in found["hosts"].items():
            broken = [f"link {x}" for x in host["broken_links"]] + [
                f"process {x}" for x in host["broken_processes"]
            ]
            words = f"  broken: {', '.join(broken)}" if broken else ""
            what = f"{host['system']:7} {host['suite']:9} {host['address'] or '-':12}"
            print(f"  {name:9} {what} {host['state']}{words}")
    return 0 if found["ours"] and all(host["state"] == "answers" for host in found["hosts"].values()) else 3


def _break_or_heal(args: argparse.Namespace) -> None:
    up = args.command == "heal"
    if args.kind == "link":
        faults.link(args.names, up)
    elif args.kind == "host":
        faults.host(args.name, up)
    else:
        faults.process(args.name, args.unit, up, hang=getattr(args, "hang", False))


def _simple(command: str) -> Any:
    def build_images() -> None:
        if lifecycle.ours(lifecycle.state()):
            line("images: in use by the running lab, as they are")
            return
        with phase("images"):
            images.bases(load().suites)

    def build_mirror() -> None:
        build_images()
        with phase("mirror"):
            found = mirror.ensure()
        line("; ".join(f"{suite}: {len(packages)} packages" for suite, packages in found.items()))

    return {
        "up": lifecycle.up,
        "down": lifecycle.down,
        "clean": lifecycle.clean,
        "images": build_images,
        "mirror": build_mirror,
        "distclean": lambda: lifecycle.clean(downloads=True),
    }[command]


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    # `lab status | head` ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        if args.command == "status":
            return _status(args.json)
        lifecycle.require_root()
        if args.command == "exec":
            return faults.execute(args.host, args.argv)
        if args.command in ("break", "heal"):
            _break_or_heal(args)
        elif args.command == "spare":
            (
                lifecycle.spare_down(args.name)
                if args.verb == "down"
                else lifecycle.spare_up(args.name, args.suite)
            )
        elif args.command == "rewire":
            lifecycle.rewire(lifecycle.everybody().host(args.name))
        else:
            _simple(args.command)()
    except LabError as error:
        print(f"lab: {error.problem}", file=sys.stderr)
        if error.hint:
            print(f"lab: next: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; next: lab/lab up takes over what is half built", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
