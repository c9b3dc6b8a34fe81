"""querygate before a real VictoriaLogs: no line of another tenant, whatever LogsQL is tried (L5, Q5).

Needs the store's program (from the lab's mirror, or below $SIDEBAND_STORES), no root.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from querygate.attempts import attempts
from querygate.kit import ADMINISTRATOR, Kit, binary, configuration, http
from querygate.scene import shown
from querygate.world import MARK, foreign, lines

pytestmark = pytest.mark.root


def there(gate: Kit) -> None:
    """The administrator sees all of beta: there is something to steal."""
    answer = gate.ask("/select/logsql/query", ADMINISTRATOR, query="*", limit=5000)
    assert len(answer.text.splitlines()) == 600
    assert foreign(answer) >= 400


NO_WALL = "from services.querygate import logsql; logsql.wall_fields = lambda wall: ()"


@contextmanager
def gate_before(directory: Path, port: int, defect: str = "") -> Iterator[Kit]:
    path = directory / "querygate.json"
    path.write_text(json.dumps({**configuration(directory, {"logs": port})}))
    gate = Kit(directory)
    try:
        gate.gate(path, jobs=False, defect=defect)
        yield gate
    finally:
        gate.stop()


def test_a_real_log_store_holds_the_wall(tmp_path: Path) -> None:
    program = binary("victoria-logs", "victoria-logs", tmp_path)
    if not program:
        pytest.skip("no victoria-logs to be had")
    logs = Kit(tmp_path)
    flags = ("-httpListenAddr=127.0.0.1:{port}", "-storageDataPath={data}", "-retentionPeriod=7d")
    try:
        port = logs.store("store", program, flags, "/health")
        into = "/insert/jsonline?_stream_fields=tenant,node&_msg_field=_msg&_time_field=_time"
        http(port, into, lines(), [("Content-Type", "application/stream+json")])
        with gate_before(tmp_path, port) as gate:
            logs.wait(lambda: there(gate))
            assert shown(gate, "/select/logsql") == []
            for attempt in attempts():
                if attempt.target.startswith("/select/logsql/"):
                    body = attempt.body.encode()
                    answer = gate.send(attempt.method, attempt.target, body, attempt.headers)
                    assert answer.status == attempt.status, (attempt, answer.text[:300])
            own = gate.ask("/select/logsql/query", query="step", limit=5000).text.splitlines()
            assert {json.loads(line)["tenant"] for line in own} == {"alpha"}
            assert len(own) == 200
            near = gate.ask(
                "/select/logsql/query", query='"step 50 loss" | stream_context before 3 after 3'
            ).text
            assert (len(near.splitlines()), MARK in near) == (7, False)
            hits = json.loads(gate.ask("/select/logsql/hits", query="*", field="tenant", step="1h").text)[
                "hits"
            ]
            assert {one["fields"]["tenant"]: one["total"] for one in hits} == {"alpha": 200}
        with gate_before(tmp_path, port, NO_WALL) as broken:
            assert len(shown(broken, "/select/logsql/query")) >= 10
    finally:
        logs.stop()
