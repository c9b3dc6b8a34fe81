"""Notifications as Alertmanager sends them, and channels that end at the stand-ins."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from lab.stand_ins import StandIns
from services.notifier.deliver import Channel

LONG = "节点温度过高，请检查风扇与机柜进风口" * 6  # case 71's annotation
URLS = {
    "wecom": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=lab-s3cr3t",
    "dingtalk": "https://oapi.dingtalk.com/robot/send?access_token=lab-s3cr3t",
    "slack": "https://hooks.slack.com/services/T0/B0/lab-s3cr3t",
}


def alert(name: str = "GpuHot", status: str = "firing", **more: Any) -> dict[str, Any]:
    labels = {
        "alertname": name,
        "severity": "critical",
        "site": "lab",
        "node": "node1",
        **more.pop("labels", {}),
    }
    notes = {
        "summary": LONG,
        "try": "Look at the fans.",
        "link": "https://docs.example/alerts#gpuhot",
        **more,
    }
    return {"status": status, "labels": labels, "annotations": notes}


def storm(count: int = 120) -> list[dict[str, Any]]:
    """Case 71: so many alerts, each of its own name, with Chinese text."""
    return [alert(f"Overheated{number:03d}", labels={"node": f"node{number}"}) for number in range(count)]


def webhook(alerts: list[dict[str, Any]]) -> bytes:
    return json.dumps({"version": "4", "status": "firing", "alerts": alerts}).encode()


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 1_000.0, 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


class World:
    """The stand-ins behind channels, without sockets."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.stand_ins = StandIns(self.clock)
        self.failures: list[Exception] = []  # to be raised first, in order

    def send(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        if self.failures:
            raise self.failures.pop(0)
        parts = urlsplit(url)
        status, answer = self.stand_ins.take(f"{parts.path}?{parts.query}", body)
        return status, answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()

    def channel(self, kind: str, url: str = "") -> Channel:
        return Channel(kind, lambda: url or URLS[kind], self.send, self.clock, self.clock.sleep)

    @property
    def seen(self) -> list[dict[str, Any]]:
        return list(self.stand_ins.seen)

    def texts(self) -> list[str]:
        """What people would read."""
        return [text(one["body"]) for one in self.seen if one["ok"]]


def text(body: dict[str, Any]) -> str:
    part = body.get("markdown") or body
    return str(part.get("content") or part.get("text") or part.get("attachments", [{}])[0].get("text", ""))
