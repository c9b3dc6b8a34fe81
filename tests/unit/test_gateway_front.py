"""What the gateway's front lets through, and what it says to the rest (Q2, Q5; cases 68, 70)."""

from __future__ import annotations

import json
import re
from typing import Any

from contract_kit import lab
from sideband import gateway_front
from sideband.contract import compile_site

from services.querygate import app, inbox
from services.querygate.config import KINDS

MODEL = compile_site(*lab())


def fronts(**serves: Any) -> list[dict[str, Any]]:
    hosts = {**MODEL["hosts"]}
    hosts["gateway1"] = {**hosts["gateway1"], "serves": {**hosts["gateway1"]["serves"], **serves}}
    return gateway_front.fronts({**MODEL, "hosts": hosts}, "gateway1", 8192)


def flow(*peers: str) -> dict[str, Any]:
    ends = [{"host": name} for name in peers]
    return {"listen4": "10.30.0.51:8444", "listen6": "", "connections": 4, "peers": ends}


def test_the_front_knows_exactly_the_paths_of_querygate() -> None:
    exact = {path for path in app.KNOWN if "NAME" not in path and "ID" not in path}
    query, *_ = fronts()
    assert set(query["exact"]) == exact
    samples = {path: path.replace("NAME", "gpu_0").replace("ID", "0af" + "1" * 29) for path in app.KNOWN}
    for path in set(app.KNOWN) - exact:
        assert [one for one in query["patterns"] if re.search(one, samples[path])], path
        for wrong in (f"/{samples[path]}", f"{samples[path]}/", samples[path].upper(), samples[path] + "%00"):
            assert not [one for one in query["patterns"] if re.search(one, wrong)], wrong
    assert gateway_front.MESSAGE_BYTES == inbox.BODY_BYTES


def test_who_may_come_is_said_by_unit_and_name() -> None:
    query, export, notify = fronts(export=flow("lake1"), notify=flow("lake1", "region1"))
    assert query["identities"] == ["tenant/alpha", "tenant/beta", "administrator/ops"]
    assert export["identities"] == ["archive/lake1"]
    assert notify["identities"] == ["alerts/lake1", "alerts/region1"]
    assert notify["exact"] == ["/api/v1/inbox", "/api/v1/wishes"]
    assert (notify["methods"], notify["bytes"]) == (["GET", "POST"], 1_048_576)
    assert set(KINDS) == {name.split("/")[0] for one in (query, export, notify) for name in one["identities"]}
    files = gateway_front.lists([query, export])
    assert files[0] == {
        "path": "/etc/sideband/gateway/query.list",
        "content": "tenant/alpha\ntenant/beta\nadministrator/ops\n", "mode": "0644",
    }  # fmt: skip
    assert [one["path"] for one in files[1:]] == ["/etc/sideband/gateway/export.list"]


def test_every_refusal_is_one_line_that_haproxy_can_quote() -> None:
    for front in fronts(export=flow("lake1"), notify=flow("region1")):
        for refusal in front["refusals"]:
            said = json.loads(refusal["body"])
            assert (said["status"], said["reason"]) == ("error", refusal["reason"])
            assert len(said["error"]) > 15
            assert not re.search(r"['\n]", refusal["body"])
