"""What each chat takes and how it answers. Limits and codes are those of their own documentation:

- WeCom group robot: `markdown.content` at most 4,096 bytes of UTF-8; 20 messages a minute; HTTP 200 with an
  `errcode` (45009: too many; -1: busy).
- DingTalk custom robot: a message at most 20,000 bytes; 20 messages a minute, beyond which it is deaf for
  ten; HTTP 200 with an `errcode` (130101, 410100: too many; -1: busy). Its keyword may be `sideband`, which
  every title has.
- Slack incoming webhook: 4,000 characters are read well (40,000 are cut); one message a second; answers 429.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.notifier.message import Markup, clean

OK, LATER, NEVER = "ok", "later", "never"


@dataclass(frozen=True)
class Form:
    markup: Markup
    body: Callable[[str], bytes]
    judge: Callable[[int, bytes], tuple[str, str]]  # (OK, LATER or NEVER; why)
    per_minute: int


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _wecom(text: str) -> bytes:
    return _encoded({"msgtype": "markdown", "markdown": {"content": text}})


def _dingtalk(text: str) -> bytes:
    title = text.split("\n", 1)[0].strip("*")
    return _encoded({"msgtype": "markdown", "markdown": {"title": title, "text": text}})


def _slack(text: str) -> bytes:
    return _encoded({"text": text})


def _coded(*busy: int) -> Callable[[int, bytes], tuple[str, str]]:
    """Robots say 200 and put the outcome into the body."""

    def judge(status: int, raw: bytes) -> tuple[str, str]:
        if status != 200:
            return _by_status(status)
        try:
            value = json.loads(raw)
            code, said = int(value["errcode"]), clean(str(value.get("errmsg", "")))[:120]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return LATER, "answered 200 without an errcode"
        if code == 0:
            return OK, ""
        return LATER if code in (-1, *busy) else NEVER, f"errcode {code}: {said}"

    return judge


def _by_status(status: int) -> tuple[str, str]:
    if status // 100 == 2:
        return OK, ""
    return LATER if status == 429 or status >= 500 else NEVER, f"answered {status}"


def _plain(status: int, raw: bytes) -> tuple[str, str]:
    outcome, why = _by_status(status)
    said = clean(raw[:120].decode("utf-8", "replace"))
    return outcome, f"{why}: {said}" if why and said else why


def _markdown(text: str, url: str) -> str:
    return f"[{text}]({url})"


FORMS = {
    "wecom": Form(
        Markup(lambda text: f"**{text}**", _markdown, "\n", lambda text: len(text.encode()) <= 4_096),
        _wecom,
        _coded(45009),
        per_minute=18,
    ),
    "dingtalk": Form(
        # A single line break is none in its markdown.
        Markup(lambda text: f"**{text}**", _markdown, "\n\n", lambda text: len(_dingtalk(text)) <= 20_000),
        _dingtalk,
        _coded(130101, 410100),
        per_minute=18,
    ),
    "slack": Form(
        Markup(
            lambda text: f"*{text}*",
            lambda text, url: f"<{url}|{text}>",
            "\n",
            lambda text: len(text) <= 4_000,
        ),
        _slack,
        _plain,
        per_minute=50,
    ),
}
