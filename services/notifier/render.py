"""A test render of Alertmanager's templates before its configuration is deployed (case 73).

amtool's own check of a configuration does not notice a text that calls a template which nobody defines;
Alertmanager does, when the alert is there, and drops it. So every text of every receiver is rendered
here, on one alert and on many, with amtool: the template engine is Alertmanager's."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

_MOST_CHARACTERS = 4_000  # what Slack shows of a text; the others show more
_LONG = "节点温度过高，请检查风扇与机柜进风口" * 6


def samples() -> dict[str, dict[str, Any]]:
    """Notifications as templates get them."""
    return {"one alert": _data(1), "120 alerts": _data(120), "no labels": _data(1, {}, {})}


def _data(
    count: int, labels: dict[str, str] | None = None, notes: dict[str, str] | None = None
) -> dict[str, Any]:
    common = {"alertname": "GpuHot", "severity": "critical", "site": "lab"} if labels is None else labels
    told = (
        {"summary": _LONG, "try": _LONG, "link": "docs/reference/alerts.md#gpuhot"}
        if notes is None
        else notes
    )
    alerts = [
        {
            "status": "resolved" if at % 3 == 2 else "firing",
            "labels": {**common, "node": f"node{at}"} if common else {},
            "annotations": told,
            "startsAt": "2026-01-01T00:00:00Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
            "fingerprint": f"{at:016x}",
        }
        for at in range(count)
    ]
    return {
        "receiver": "check",
        "status": "firing",
        "alerts": alerts,
        "groupLabels": {key: common[key] for key in ("alertname", "site") if key in common},
        "commonLabels": common,
        "commonAnnotations": told,
        "externalURL": "",
    }


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(where, text) of everything in a receiver that is a template."""
    if isinstance(value, str) and "{{" in value:
        yield path, value
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield from texts(inside, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for at, inside in enumerate(value):
            yield from texts(inside, f"{path}[{at}]")


def problems(amtool: str, path: str) -> list[str]:
    """Everything that is wrong with a configuration and its templates, a line each."""
    checked = _run([amtool, "check-config", path])
    if checked.returncode:
        return [_last(checked)]
    with open(path, encoding="utf-8") as file:
        config = json.load(file)  # ours are written as JSON, which YAML reads too
    found: list[str] = []
    globs = [word for pattern in config.get("templates", ()) for word in ("--template.glob", pattern)]
    with tempfile.TemporaryDirectory() as directory:
        for name, data in samples().items():
            sample = os.path.join(directory, "data.json")
            with open(sample, "w", encoding="utf-8") as file:
                json.dump(data, file)
            for receiver in config["receivers"]:
                for where, text in texts(receiver, str(receiver["name"])):
                    words = [
                        amtool,
                        "template",
                        "render",
                        *globs,
                        "--template.text",
                        text,
                        "--template.data",
                        sample,
                    ]
                    found += _judged(f"{where}, {name}", _run(words))
    return found


def _judged(where: str, done: subprocess.CompletedProcess[str]) -> list[str]:
    if done.returncode:
        return [f"{where}: {_last(done)}"]
    if "<no value>" in done.stdout:
        return [f"{where}: asks for something that is not there"]
    if len(done.stdout) > _MOST_CHARACTERS:
        return [f"{where}: is {len(done.stdout)} characters long, {_MOST_CHARACTERS} may be"]
    return []


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
