"""What a tenant may try to see another's series, each with the status that it should get.

`alpha` asks. `beta` runs on rack2 and, as a guest, on alpha's own rack1. 200 means: answered, from alpha's
own. The same attempts go through the whole gateway on the lab; what HAProxy refuses has its own status there.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

OTHER = "beta"
_QUOTED = urllib.parse.quote


@dataclass(frozen=True)
class Attempt:
    name: str
    status: int
    method: str
    target: str
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name


# Each endpoint's own question, as wide as its form allows.
ENDPOINTS = {
    "/api/v1/query": "query=gpu_util",
    "/api/v1/query_range": "query=gpu_util&start=-30m&end=now&step=60",
    "/api/v1/series": "match%5B%5D=gpu_util",
    "/api/v1/labels": "start=-1h",
    "/api/v1/label/tenant/values": "start=-1h",
    "/select/logsql/query": "query=*",
    "/select/logsql/hits": "query=*&step=60",
    "/api/v1/jobs": "query=gpu_util&start=-30m&end=now&step=60",
}

_FILTER = _QUOTED('{tenant="beta"}')
# (name, text added to a question, status): none of these names exists at any endpoint.
SMUGGLED = (
    ("extra_filters", f"extra_filters={_FILTER}", 400),
    ("extra_filters[]", f"extra_filters[]={_FILTER}", 400),
    ("extra_filters[] encoded", f"extra_filters%5B%5D={_FILTER}", 400),
    ("extra_filters half encoded", f"extra%5Ffilter%73={_FILTER}", 400),
    ("extra_label", "extra_label=tenant%3Dbeta", 400),
    ("extra_stream_filters", "extra_stream_filters=" + _QUOTED('{"tenant":"beta"}'), 400),
    ("array query", "query[]=gpu_util%7Btenant%3D%22beta%22%7D", 400),
    ("array start", "start[]=0", 400),
    ("no cache", "nocache=1", 400),
    ("trace", "trace=1", 400),
    ("without value", "extra_filters%5B%5D", 400),
    ("semicolon", f"tier=minute;extra_filters[]={_FILTER}", 400),
    ("zero byte", "tier=minute%00", 400),
    ("broken escape", "tier=%zz", 400),
    ("no UTF-8", "tier=%ff", 400),
    ("another tier", "tier=hot", 403),
)

PATHS = (
    "/", "//api/v1/query", "/api//v1/query", "/api/v1/query/", "/api/v1/%71uery", "/API/v1/query",
    "/api/v1/Query", "/api/v1/query%2f", "/api/v1/query%3fextra_filters%5B%5D=%7B%7D",
    "/api/v1/query;extra_filters=x", "/api/v1/query/../admin/tsdb/delete_series",
    "/api/v1/admin/tsdb/delete_series", "//api/v1/admin/tsdb/delete_series",
    "/api/v1/%61dmin/tsdb/delete_series", "/x/../internal/force_flush", "/internal/force_flush",
    "/api/v1/export", "/api/v1/export/csv", "/federate", "/api/v1/status/tsdb",
    "/api/v1/status/active_queries", "/api/v1/series/count", "/prometheus/api/v1/query", "/graphite/render",
    "/render", "/metrics", "/-/ready", "/flags", "/debug/pprof/", "/api/v1/read", "/api/v1/write",
    "/api/v1/label//values", "/api/v1/label/tenant/values/", "/api/v1/label/a%2Fb/values",
    "/api/v1/label/../labels", "/api/v1/label/tenant%00/values", "/select/logsql/tail",
    "/select/logsql/field_values", "/select/logsql/streams", "/select/0/prometheus/api/v1/query",
    "/select/logsql/query/", "/vmui/", "/api/v1/jobs/", "/api/v1/jobs/../query", "/api/v1/jobs/ID",
    "/api/v1/query_exemplars", "/api/v1/query\\..\\admin", "http://gate/api/v1/query", "*",
)  # fmt: skip

_POST = "POST /api/v1/query HTTP/1.1\r\nHost: x\r\n"
# Requests that one reader may take for another than the next: the front takes none of them.
ODD_REQUESTS = {
    name: text.encode("latin-1")
    for name, text in {
        "both lengths": f"{_POST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": f"{_POST}Content-Length: 5\r\nContent-Length: 6\r\n\r\nquery=",
        "a name with a space": f"{_POST}Content-Length : 5\r\n\r\nquery",
        "chunks": f"{_POST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "an odd chunking": f"{_POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "a zero byte": "GET /api/v1/query?query=up\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        "no target": "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        "a whole address": "GET http://x/api/v1/query?query=gpu_util HTTP/1.1\r\nHost: x\r\n\r\n",
        "another host": "GET http://lake1/minute/api/v1/export HTTP/1.1\r\nHost: lake1\r\n\r\n",
        "a tunnel": "CONNECT lake1:8430 HTTP/1.1\r\nHost: lake1:8430\r\n\r\n",
        "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "no version": "GET /api/v1/query?query=gpu_util\r\n\r\n",
    }.items()
}

# Expressions at query, query_range and jobs: (text, status).
EXPRESSIONS = (
    ('gpu_util{tenant="beta"}', 200),
    ('gpu_util{tenant=~".*"}', 200),
    ('gpu_util{tenant!="alpha"}', 200),
    ('gpu_util{tenant=~"beta|alpha"}', 200),
    ('gpu_util{rack="rack2"}', 200),
    ('gpu_util{rack!~"rack1"}', 200),
    ('{__name__=~".+"}', 200),
    ('{__name__!=""}', 200),
    ('{tenant="beta"}', 200),
    ('{"gpu_util",tenant="beta"}', 200),
    ('{__name__="gpu_util",__name__=~".*",tenant="beta"}', 200),
    ('{__name__="gpu_util{tenant=\\"beta\\"}"}', 200),
    ('gpu_util{gpu="0" or tenant="beta"}', 200),
    ('gpu_util{tenant="beta" or tenant="alpha"}', 200),
    ('{__name__="gpu_util" or tenant="beta"}', 200),
    ('{tenant="alpha" or rack=~".+"}', 200),
    ('gpu_util or gpu_util{tenant="beta"}', 200),
    ('gpu_util unless on() gpu_util{tenant="beta"}', 200),
    ("sum(gpu_util)", 200),
    ("sum by (tenant, node) (gpu_util)", 200),
    ('count({__name__=~".+"})', 200),
    ('count(count by (node) ({__name__=~".+"}))', 200),
    ('count by (__name__) ({__name__=~".+"})', 200),
    ('topk(1000, {__name__=~".+"})', 200),
    ('count_values("v", gpu_util)', 200),
    ('count_values("tenant", gpu_util)', 422),
    ('absent(gpu_util{tenant=~"beta"})', 200),
    ('scalar(gpu_util{tenant="beta"})', 200),
    ("max_over_time(gpu_util[1h])", 200),
    ('max_over_time(gpu_util{tenant="beta"}[1h] offset 1m)', 200),
    ("gpu_util @ start()", 200),
    ("gpu_util @ end()", 200),
    ('gpu_util{tenant="beta"} @ 1700000000', 200),
    ("gpu_util @ 0", 200),
    ("gpu_util @ -1", 422),
    ("gpu_util @ 1e300", 422),
    ("gpu_util offset -1h", 200),
    ("gpu_util offset 30y", 200),
    ('max_over_time(gpu_util{tenant="beta"}[30m:1m])', 200),
    ("max_over_time(sum(gpu_util)[30m:])", 200),
    ("sum(max_over_time(gpu_util[30m:1m] @ end()))", 200),
    ("max_over_time(gpu_util[3650d:1s])", 422),
    ('label_replace(gpu_util, "tenant", "beta", "", "")', 422),
    ('label_replace(gpu_util, ("rack"), "rack2", "", "")', 422),
    ('label_join(gpu_util, "tenant", "", "node")', 422),
    ('label_replace(gpu_util{tenant="beta"}, "owner", "$1", "tenant", "(.*)")', 200),
    ("gpu_util * on (gpu) group_left (node) load", 200),
    ('gpu_util + ignoring (tenant, node) group_right () gpu_util{tenant="beta"}', 200),
    ("gpu_util{tenant='beta'}", 200),
    ("gpu_util{tenant=`beta`}", 200),
    ('gpu_util{tenant="\\u0062eta"}', 200),
    ('gpu_util{tenant="\\x62eta"}', 200),
    ('gpu_util # {tenant="alpha"}', 200),
    ('gpu_util{tenant="beta"} # "}', 200),
    ('gpu_util{gpu="\\"} or {tenant=\\"beta"}', 200),
    ('gpu_util{gpu=~"0\\"} or {tenant=~\\"beta"}', 200),
    ('gpu_util{tenant="beta"', 422),
    ('gpu_util}{tenant="beta"}', 422),
    ('gpu_util) or (gpu_util{tenant="beta"}', 422),
    ('gpu_util&extra_filters[]={tenant="beta"}', 422),
    ('gpu_util{}{tenant="beta"}', 422),
    ("info(gpu_util)", 422),
    ("rollup(gpu_util[5m])", 422),
    ('WITH (f = {tenant="beta"}) gpu_util{f}', 422),
    ('union(gpu_util, gpu_util{tenant="beta"})', 422),
    ('label_set(gpu_util, "tenant", "beta")', 422),
    ('gpu_util{"weird name"="x"}', 422),
    ('{"weird name"}', 200),
    ("abs(" * 60 + "gpu_util" + ")" * 60, 422),
    ("gpu_util" + " + gpu_util" * 400, 422),
    ('"tenant"', 200),
)

SELECTORS = (
    ('{tenant="beta"}', 200),
    ('{__name__=~".+"}', 200),
    ('gpu_util{gpu="0" or tenant="beta"}', 200),
    ('{tenant=~".+" or rack=~".+"}', 200),
    ("gpu_util[1h]", 400),
    ("gpu_util offset 1h", 400),
    ('gpu_util or {tenant="beta"}', 400),
    ("sum(gpu_util)", 400),
    ("{}", 400),
)

LINES = (
    ('tenant:="beta"', 200),
    ('{tenant="beta"}', 200),
    ('{tenant="alpha" or tenant="beta"}', 200),
    ('* or {tenant="beta"}', 200),
    ('* | filter tenant:="beta"', 200),
    ("* | stats by (tenant) count() n", 200),
    ('* or (tenant:="beta")', 200),
    ('word "a | join b" word', 200),
    ("* | stream_context before 100", 200),
    ('* | join by (node) ({tenant="beta"})', 422),
    ('* | union ({tenant="beta"})', 422),
    ("* | field_values tenant", 422),
    ("* | facets", 422),
    ("* | block_stats", 422),
    ("* |\tjoin by (node) (x)", 422),
    ("* | JOIN by (node) (x)", 422),
    ('node:in({tenant="beta"} | fields node)', 422),
    ("options(ignore_global_time_filter=true) *", 422),
    ("OPTIONS (ignore_global_time_filter=true) *", 422),
    ("don't | join by (node) (x)", 422),
    ('"a\\q | union (x)', 422),
    ('"\\x41" | union (x)', 422),
    ("* # comment", 422),
)


def attempts() -> Iterator[Attempt]:
    for path, base in ENDPOINTS.items():
        yield from _smuggled(path, base)
    for path in PATHS:
        yield Attempt(f"path {path}", 403, "GET", f"{path}?query=gpu_util" if "?" not in path else path)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"):
        yield Attempt(f"{method} query", 405, method, "/api/v1/query?query=gpu_util")
    yield from _headers()
    for path in ("/api/v1/query", "/api/v1/query_range"):
        span = "&start=-30m&end=now&step=60" if path.endswith("range") else ""
        for number, (text, status) in enumerate(EXPRESSIONS):
            method = "GET" if number % 2 else "POST"
            yield _asked(f"{path} {text[:60]}", status, method, path, f"query={_QUOTED(text)}{span}")
    for path in (
        "/api/v1/series",
        "/api/v1/labels",
        "/api/v1/label/node/values",
        "/api/v1/label/tenant/values",
    ):
        for text, status in SELECTORS:
            yield _asked(f"{path} {text}", status, "GET", path, f"match[]={_QUOTED(text)}&start=-1h")
    for name in ("__name__", "node", "rack", "mark", "tenant"):
        yield Attempt(f"values of {name}", 200, "GET", f"/api/v1/label/{name}/values")
    for number, (text, status) in enumerate(LINES):
        for path in ("/select/logsql/query", "/select/logsql/hits"):
            method = "POST" if number % 2 else "GET"
            yield _asked(f"{path} {text[:60]}", status, method, path, f"query={_QUOTED(text)}")


def _asked(name: str, status: int, method: str, path: str, text: str) -> Attempt:
    name = f"{method} {name}"
    return (
        Attempt(name, status, "GET", f"{path}?{text}") if method == "GET" else _post(name, status, path, text)
    )


def _post(name: str, status: int, target: str, body: str, kind: str = "") -> Attempt:
    kind = kind or "application/x-www-form-urlencoded"
    return Attempt(name, status, "POST", target, body, (("Content-Type", kind),))


def _smuggled(path: str, base: str) -> Iterator[Attempt]:
    first = base.split("&")[0]
    jobs = path.endswith("/jobs")
    logs = "logsql" in path
    for name, extra, status in SMUGGLED:
        expected = 400 if logs and status == 403 else status  # no tier to choose there
        for text, order in ((f"{base}&{extra}", "last"), (f"{extra}&{base}", "first")):
            if not jobs:
                yield Attempt(f"GET {path} {name} {order}", expected, "GET", f"{path}?{text}")
            yield _post(f"POST {path} {name} {order}", expected, path, text)
        yield _post(f"mixed {path} {name}", 400, f"{path}?{extra}", base)
    yield _post(f"mixed {path} question in both", 400, f"{path}?{base}", base)
    if not jobs:
        yield Attempt(f"GET with body {path}", 400, "GET", f"{path}?{base}", f"extra_filters={_FILTER}")
    for method in ("GET", "POST"):
        if jobs and method == "GET":
            continue
        yield _asked(f"{path} twice", 400, method, path, f"{base}&{first}")
        yield _asked(
            f"{path} twice, once encoded", 400, method, path, f"{base}&%{ord(first[0]):02x}{first[1:]}"
        )
    multipart = (
        '--x\r\nContent-Disposition: form-data; name="extra_filters[]"\r\n\r\n{tenant="beta"}\r\n--x--\r\n'
    )
    yield _post(f"multipart {path}", 415, path, multipart, "multipart/form-data; boundary=x")
    yield _post(f"JSON {path}", 415, path, "{}", "application/json")
    yield _post(f"other charset {path}", 415, path, base, "application/x-www-form-urlencoded; charset=utf-7")
    double = (("Content-Type", "application/x-www-form-urlencoded"), ("Content-Type", "multipart/form-data"))
    yield Attempt(f"two types {path}", 415, "POST", path, base, double)
    packed = (("Content-Type", "application/x-www-form-urlencoded"), ("Content-Encoding", "gzip"))
    yield Attempt(f"packed {path}", 415, "POST", path, base, packed)
    if not jobs:
        for name, value in (
            ("AccountID", "1"),
            ("X-Original-URL", "/api/v1/export"),
            ("X-Forwarded-User", OTHER),
        ):
            yield Attempt(f"header {name} {path}", 200, "GET", f"{path}?{base}", "", ((name, value),))


def _headers() -> Iterator[Attempt]:
    """The front sets the header once; a second one, or another spelling of it, is nobody."""
    target = "/api/v1/query?query=gpu_util"
    for value in ("tenant/beta", "administrator/ops", "tenant/alpha"):
        yield Attempt(f"second identity {value}", 403, "GET", target, "", (("X-Sideband-Identity", value),))
        yield Attempt(f"lower case {value}", 403, "GET", target, "", (("x-sideband-identity", value),))
        yield Attempt(f"underscores {value}", 200, "GET", target, "", (("X_Sideband_Identity", value),))
    yield Attempt("method override", 200, "GET", target, "", (("X-HTTP-Method-Override", "DELETE"),))
