#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_info
short_description: Say which nodes have followed a signed document, as the lake sees it
description:
  - Asks the hot tier over mutual TLS which generation every node reports and what it still sends, and
    compares that with what the level lists. It runs on a gateway, which may ask the lake. It connects to no
    node.
  - Returns as soon as something has changed, everything is reached, or O(wait_seconds) are over, so that a
    play can show progress between calls.
options:
  url:
    description: The hot tier's instant query, for example C(https://10.30.0.41:8430/hot/api/v1/query).
    type: str
    required: true
  ca:
    description: File with the authority that the lake's certificate must come from.
    type: path
    required: true
  certificate:
    description: File with this host's certificate.
    type: path
    required: true
  key:
    description: File with this host's key.
    type: path
    required: true
  expected:
    description: What must be seen, as the library's C(fleet.expectation) makes it.
    type: dict
    required: true
  generation:
    description: The generation that every node must have reported.
    type: int
    required: true
  before:
    description: What the call before this one returned; empty at the first.
    type: dict
    default: {}
  wait_seconds:
    description: How long to wait for a change.
    type: int
    default: 5
author: [sideband]
"""

EXAMPLES = r"""
- name: Ask once who runs at core
  fleet_info:
    url: https://10.30.0.41:8430/hot/api/v1/query
    ca: /etc/sideband/gateway/ca.crt
    certificate: /etc/sideband/gateway/host.crt
    key: /etc/sideband/gateway/host.key
    expected: {level: core, scope: all, nodes: [node1], keep: "^(?:up)$", marks: [], window_seconds: 35}
    generation: 1764500000000
    wait_seconds: 0
"""

RETURN = r"""
nodes:
  description: For each node its generation, its number of series, whether it has followed, and why not.
  type: dict
  returned: always
reached_at:
  description: When the last node's generation was first seen, in seconds since the epoch; null before.
  type: float
  returned: always
shown_at:
  description: When the lake first showed every node at the level, in seconds since the epoch; null before.
  type: float
  returned: always
line:
  description: Progress in one line.
  type: str
  returned: always
problem:
  description: Why the lake could not be asked, or an empty text.
  type: str
  returned: always
now:
  description: This host's clock, in seconds since the epoch.
  type: float
  returned: always
"""

import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import quote, urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sideband import fleet

POLL_SECONDS = 0.5


class Lake:
    """The kept connection to the hot tier."""

    def __init__(self, url: str, ca: str, certificate: str, key: str) -> None:
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(certificate, key)
        parts = urlsplit(url)
        self._path = parts.path
        self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=5, context=context)

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        try:
            self._connection.request("GET", f"{self._path}?query={quote(query, safe='')}")
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if response.status != 200:
            raise ValueError(
                f"the lake answers {response.status}: {body[:200].decode('utf-8', 'replace').strip()}"
            )
        return fleet.values(json.loads(body))


def look(lake: Lake, expected: dict[str, Any], generation: int) -> dict[str, Any]:
    recent = fleet.recent_names(expected["window_seconds"])
    return fleet.judge(
        expected, generation, *(lake.ask(one) for one in (fleet.GENERATIONS, fleet.NAMES, recent))
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "ca": {"type": "path", "required": True},
            "certificate": {"type": "path", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},  # a path
            "expected": {"type": "dict", "required": True},
            "generation": {"type": "int", "required": True},
            "before": {"type": "dict", "default": {}},
            "wait_seconds": {"type": "int", "default": 5},
        },
        supports_check_mode=True,
    )
    given = module.params
    expected, before = given["expected"], given["before"]
    try:
        lake = Lake(given["url"], given["ca"], given["certificate"], given["key"])
    except (OSError, ssl.SSLError, ValueError) as error:
        module.fail_json(
            msg=f"{given['ca']}, {given['certificate']}, {given['key']}: {error}; hint: run the site first"
        )
    result = {
        "nodes": before.get("nodes", {}),
        "reached_at": before.get("reached_at"),
        "shown_at": before.get("shown_at"),
        "line": "",
        "problem": "",
    }
    deadline = time.monotonic() + given["wait_seconds"]
    while True:
        try:
            found = look(lake, expected, given["generation"])
            result["problem"] = ""
        except (OSError, http.client.HTTPException, ValueError) as error:
            found, result["problem"] = {}, str(error)
        now = time.time()
        if found:
            line = fleet.progress(found, expected["level"])
            moved = line != fleet.progress(result["nodes"], expected["level"])
            result.update(nodes=found, line=line)
            if result["reached_at"] is None and all(one["reached"] for one in found.values()):
                result["reached_at"] = now
            if result["shown_at"] is None and all(one["shown"] for one in found.values()):
                result["shown_at"] = now
            if result["shown_at"] is not None or (moved and before):
                break
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    result["line"] = result["line"] or f"{expected['level']}: the lake cannot be asked: {result['problem']}"
    module.exit_json(changed=False, now=now, **result)


if __name__ == "__main__":
    main()
