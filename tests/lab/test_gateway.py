"""What a tenant gets through the gateway of the lab, from its desk on the query plane (B7; cases 68, 70)."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from front import site
from front.client import Answer

pytestmark = pytest.mark.lab
EVERYTHING = 'count by (rack) ({__name__=~".+"})'


def ask(name: str, query: str, path: str = "/api/v1/query", address: str = site.GATEWAY) -> Answer:
    return site.tenant(name, address).ask("GET", f"{path}?{query}")


def racks(answer: Answer) -> set[str]:
    assert answer.status == 200, answer
    return {series["metric"].get("rack", "") for series in json.loads(answer.body)["data"]["result"]}


@pytest.mark.parametrize("address", [site.GATEWAY, site.GATEWAY6])
@pytest.mark.parametrize(("name", "rack"), [("alpha", "rack1"), ("beta", "rack2")])
def test_a_tenant_sees_its_own_racks(name: str, rack: str, address: str) -> None:
    """There is something to see of both, and each sees one."""
    assert {row["metric"].get("rack") for row in site.minute(EVERYTHING)} >= {"rack1", "rack2"}
    query = "query=" + urllib.parse.quote(EVERYTHING)
    assert racks(ask(f"tenant-{name}", query, address=address)) == {rack}
    ranged = f"{query}&start=-10m&end=now&step=60"
    assert racks(ask(f"tenant-{name}", ranged, "/api/v1/query_range", address)) == {rack}


@pytest.mark.parametrize(
    "extra",
    [
        "extra_filters[]={rack=~%22.*%22}",
        "extra_filters=%7B%7D",
        "extra_label=rack=rack2",
        "query=up",
        "nocache=1",
    ],
)
def test_a_tenants_own_filter_is_refused(extra: str) -> None:
    answer = ask("tenant-alpha", "query=up&" + extra)
    assert answer.status == 400
    assert answer.text


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/query",
        "/api/v1/%71uery",
        "/api/v1/query/../admin/tsdb/delete_series",
        "/API/v1/query",
        "/api/v1/series",
    ],
)
def test_another_path_is_refused(path: str) -> None:
    assert ask("tenant-alpha", "query=up", path).status == 403


def test_a_form_is_refused() -> None:
    client = site.tenant("tenant-alpha")
    header = [("Content-Type", "application/x-www-form-urlencoded")]
    answer = client.ask("POST", "/api/v1/query", b"query=up&extra_filters[]={}", header)
    assert (answer.status, "GET" in answer.text) == (405, True)


@pytest.mark.parametrize("identity", ["node-node1", "region-region1", "lake-lake1"])
def test_who_is_no_tenant_is_refused(identity: str) -> None:
    assert ask(identity, "query=up").status == 403
