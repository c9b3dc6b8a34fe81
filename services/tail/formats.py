"""How container engines write the output of a container: each line in an envelope with its own time."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from services.tail import moment
from services.tail.line import Line

_CRI = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP])(?::\S*)? ?")


def plain(line: Line) -> Line:
    return line


def docker(line: Line) -> Line:
    """Docker's json-file: a text without a line feed at its end goes on in the next line."""
    try:
        value = json.loads(line.text)
        text, channel, at = str(value["log"]), str(value.get("stream", "")), str(value.get("time", ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        return line
    whole = text.endswith("\n")
    stamp = moment.own_time(at, moment.now())
    return replace(line, text=text.rstrip("\r\n"), channel=channel, time=stamp, part=line.part or not whole)


def cri(line: Line) -> Line:
    """The kubelet's and Podman's k8s-file: `TIME STREAM F|P TEXT`; P goes on in the next line."""
    found = _CRI.match(line.text)
    if not found:
        return line
    stamp = moment.own_time(found.group(1), moment.now())
    return replace(
        line,
        text=line.text[found.end() :],
        channel=found.group(2),
        time=stamp,
        part=line.part or found.group(3) == "P",
    )


FORMATS = {"plain": plain, "docker": docker, "cri": cri}
