"""The data path of one rack by its real daemons: identity, paths, limits, tenancy (acceptance 5; B3, B7, D7).

No lab: one network namespace and one root, see tests/front/bench.py."""

from __future__ import annotations

import base64
import itertools
import json
import re
import ssl
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from front.bench import NAMESPACE, Bench
from front.client import REMOTE_WRITE, Answer, Client, read_answer, snappy, socket_in, write_request
from front.forgeries import BINARY_FORGERIES, FORGED_QUERIES, TEXT_FORGERIES
from querygate.attempts import ODD_REQUESTS, PATHS
from querygate.world import as_text, foreign, series

pytestmark = pytest.mark.root
SERIAL = itertools.count(1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench.make(tmp_path_factory.mktemp("front"))
    try:
        bench.start_all()
        yield bench
    finally:
        bench.stop_all()


@pytest.fixture
def node1(bench: Bench) -> Client:
    return bench.client("node-node1")


def marker() -> str:
    return f"m{next(SERIAL)}"


def now() -> int:
    return int(time.time() * 1000)


def refused(bench: Bench) -> dict[str, int]:
    text = bench.plain(8533, "/metrics").decode()
    return {reason: int(count) for reason, count in re.findall(r'reason="(\w+)"\} (\d+)', text)}


def random_name(bench: Bench) -> str:
    return (bench.root / "etc/sideband/rack/identity.env").read_text().strip().split("=")[1]


def test_every_daemon_accepts_its_configuration(bench: Bench) -> None:
    said = bench.check()
    assert len(said) >= 7
    assert set(said.values()) == {""}


@pytest.mark.parametrize(
    ("path", "broken"),
    [
        ("/etc/sideband/rack/admission.yml", "- action: replace\n"),
        ("/etc/sideband/rack/haproxy.cfg", "frontend x\n    bindd :1\n"),
        ("/etc/sideband/region/minute.yml", "- interval: 1m\n  outputs: [nothing]\n"),
        ("/etc/sideband/lake/prometheus.yml", "storage: {tsdb: {out_of_order_time_window: 7}}\n"),
        ("/etc/sideband/gateway/haproxy.cfg", "frontend x\n    http-request set-uri %5\n"),
        ("/etc/sideband/gateway/querygate.json", "{}"),
    ],
)
def test_a_broken_file_is_refused_by_its_own_check(bench: Bench, path: str, broken: str) -> None:
    """Case 58: an invalid file never reaches the daemon."""
    place = bench.root / path.lstrip("/")
    sound = place.read_text()
    place.write_text(broken)
    try:
        said = bench.check()
    finally:
        place.write_text(sound)
    assert said[path], path
    assert not [text for other, text in said.items() if other != path and text]


# -- who


def assert_own(bench: Bench, mark: str) -> None:
    """Exactly one series carries the mark, and it is node1's."""
    found = bench.hot_when(f'{{m="{mark}"}}')
    assert len(found) == 1, found
    metric = found[0]["metric"]
    assert (metric["node"], metric["rack"], metric["site"]) == ("node1", "rack1", "lab")
    assert not [name for name in metric if name.startswith("__id") or random_name(bench) in name]


@pytest.mark.parametrize("forgery", TEXT_FORGERIES.values(), ids=TEXT_FORGERIES.keys())
def test_text_is_stored_under_the_senders_own_name(bench: Bench, node1: Client, forgery: str) -> None:
    mark = marker()
    assert node1.push_text(forgery.format(m=mark) + "\n").status == 204
    assert_own(bench, mark)


@pytest.mark.parametrize("labels", BINARY_FORGERIES.values(), ids=BINARY_FORGERIES.keys())
@pytest.mark.parametrize("place", ["before", "after"])
def test_remote_write_is_stored_under_the_senders_own_name(
    bench: Bench, node1: Client, labels: list[tuple[str, str]], place: str
) -> None:
    mark = marker()
    given = [("__name__", "forged"), ("m", mark)]
    series = labels + given if place == "before" else given + labels
    assert node1.push([(series, [(1.0, now())])]).status == 204
    assert_own(bench, mark)


@pytest.mark.parametrize("query", FORGED_QUERIES)
@pytest.mark.parametrize("path", ["/api/v1/write", "/api/v1/import/prometheus"])
def test_the_senders_query_string_says_nothing(bench: Bench, node1: Client, path: str, query: str) -> None:
    mark = marker()
    if path.endswith("write"):
        answer = node1.push([([("__name__", "forged"), ("m", mark)], [(1.0, now())])], f"{path}?{query}")
    else:
        answer = node1.push_text(f'forged{{m="{mark}"}} 1\n', f"{path}?{query}")
    assert answer.status == 204
    assert_own(bench, mark)


def test_even_the_random_name_once_known_makes_nobody_else(bench: Bench, node1: Client) -> None:
    """A leaked name alone does not forge: the label that HAProxy appends comes last and wins."""
    name = random_name(bench)
    mark = marker()
    labels = [("__name__", "forged"), ("m", mark), (name, "node2"), (f"{name}_rack", "rack2")]
    assert node1.push([(labels, [(1.0, now())])]).status == 204
    assert_own(bench, mark)


def test_a_node_that_is_pushed_for_gains_loses_and_changes_nothing(bench: Bench, node1: Client) -> None:
    """Acceptance 5: the series of node2 are the same before and after a hundred forgeries by node1."""
    mark = marker()
    node2 = bench.client("node-node2")
    instant = now() - 60000
    own = [("__name__", "temperature"), ("m", mark)]
    assert node2.push([(own, [(20.0, instant), (21.0, instant + 1000)])]).status == 204
    before = bench.hot_when(f'temperature{{m="{mark}",node="node2"}}')
    for number in range(10):
        forged = [("node", "node2"), *own, ("node", "node2"), ("rack", "rack1")]
        node1.push([(forged, [(99.0, instant + 100 * number + step) for step in range(10)])])
        node1.push_text(f'temperature{{m="{mark}",node="node2"}} 99 {instant + 7 * number}\n')
    assert bench.hot_when(f'temperature{{m="{mark}",node="node1"}}')
    assert bench.hot(f'temperature{{m="{mark}",node="node2"}}') == before
    assert before[0]["values"] == [[instant / 1000, "20"], [(instant + 1000) / 1000, "21"]]


def test_samples_without_a_sender_are_refused(bench: Bench) -> None:
    """Whoever reaches vmagent without passing the front has no name."""
    mark = marker()
    bench.plain(8530, "/api/v1/import/prometheus", "POST", f'forged{{m="{mark}",node="node2"}} 1\n'.encode())
    time.sleep(3)
    assert bench.hot(f'{{m="{mark}"}}') == []


@pytest.mark.parametrize(
    "identity",
    [
        "node-node3",
        "rack-rack1",
        "rack-rack2",
        "region-region1",
        "lake-lake1",
        "gateway-gateway1",
        "tenant-alpha",
    ],
)
@pytest.mark.parametrize(
    "request_line", ["POST /api/v1/write", "POST /api/v1/import/prometheus", "GET /policy"]
)
def test_only_nodes_of_its_own_racks_are_heard(bench: Bench, identity: str, request_line: str) -> None:
    before = refused(bench)["identity"]
    answer = bench.client(identity).ask(*request_line.split())
    assert answer.status == 403
    assert "OU=node" in answer.text
    assert refused(bench)["identity"] == before + 1


def test_a_foreign_or_missing_certificate_ends_in_the_handshake(bench: Bench, tmp_path: Path) -> None:
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name, subject in (("node-node1", "/OU=node/CN=node1"), ("ca", "/CN=stranger")):
        subprocess.run([*openssl, "-subj", subject, "-keyout", tmp_path / f"{name}.key", "-out",
                        tmp_path / f"{name}.crt"],
                       check=True, capture_output=True)  # fmt: skip
    (tmp_path / "ca.crt").write_text((bench.pki / "ca.crt").read_text())
    for pki, identity in ((tmp_path, "node-node1"), (bench.pki, "")):
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            Client(NAMESPACE, pki, identity, ("10.21.0.21", 8427)).ask("GET", "/policy")


def test_both_families_answer(bench: Bench) -> None:
    """Case 4: an IPv6 literal in every place where an address meets a port."""
    for address, port in (("fd00:5b:21::21", 8427), ("fd00:5b:40::51", 8443)):
        identity = "node-node1" if port == 8427 else "tenant-alpha"
        path = "/policy" if port == 8427 else "/api/v1/query?query=1"
        assert bench.client(identity, address, port).ask("GET", path).status == 200


# -- what

BAD_PATHS = [
    "/",
    "//api/v1/write",
    "/api/v1/write/",
    "/api/v1//write",
    "/api/v1/%77rite",
    "/API/v1/write",
    "/api/v1/write%3f",
    "/x/../api/v1/write",
    "/api/v1/import",
    "/api/v1/import/prometheus/metrics/job/x/node/node2",
    "/api/v1/import/csv",
    "/write",
    "/insert/0/prometheus/api/v1/write",
    "/metrics",
    "/debug/pprof/",
    "/-/reload",
    "/flags",
    "/target_response",
    "/datadog/api/v2/series",
    "/opentelemetry/v1/metrics",
    "/policy/",
    "/policy%20",
    "/Policy",
    "/api/v1/write;a",
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_every_other_path_is_refused_with_a_reason(bench: Bench, node1: Client, path: str) -> None:
    """Case 70: an allow-list of exact paths."""
    before = refused(bench)["path"]
    answer = node1.ask("POST", path, b"forged 1\n")
    assert answer.status == 403
    assert "/api/v1/write" in answer.text
    assert refused(bench)["path"] == before + 1


def test_an_absolute_request_target_gets_the_same_judgement(bench: Bench, node1: Client) -> None:
    mark = marker()
    body = f'forged{{m="{mark}",node="node2"}} 1\n'.encode()
    target = "http://front/api/v1/import/prometheus?extra_label=node=node2"
    assert node1.ask("POST", target, body).status == 204
    assert_own(bench, mark)
    assert node1.ask("POST", "http://front/flags", body).status == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_samples_come_by_post_alone(node1: Client, method: str) -> None:
    assert node1.ask(method, "/api/v1/write").status == 405


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_the_document_is_read_by_get_alone(node1: Client, method: str) -> None:
    assert node1.ask(method, "/policy").status == 405


# -- how much


def test_bodies_are_bounded_and_of_known_length(bench: Bench, node1: Client) -> None:
    before = refused(bench)
    assert node1.push_text("x" * 65537).status == 413
    assert (
        node1.raw(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 9437185\r\n\r\n").status == 413
    )
    chunked = (
        b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    assert node1.raw(chunked).status == 411
    assert node1.raw(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\n\r\n").status == 411
    after = refused(bench)
    assert (after["size"] - before["size"], after["length"] - before["length"]) == (2, 2)


def test_a_body_that_never_comes_holds_nobody_up(bench: Bench, node1: Client) -> None:
    with (
        socket_in(NAMESPACE, node1.address, 5) as plain,
        node1.context.wrap_socket(plain, server_hostname="10.21.0.21") as slow,
    ):
        slow.sendall(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nab")
        assert node1.ask("GET", "/policy").status == 200


def test_connections_per_certificate_are_bounded(bench: Bench) -> None:
    """The contract's `connections: 8` of the flow `push`; another node is not hindered."""
    client = bench.client("node-node2")
    held = []
    try:
        for _ in range(8):
            plain = socket_in(NAMESPACE, client.address, 5)
            held.append(client.context.wrap_socket(plain, server_hostname="10.21.0.21"))
            held[-1].sendall(b"GET /policy HTTP/1.1\r\nHost: x\r\n\r\n")
            with held[-1].makefile("rb") as reader:
                assert read_answer(reader).status == 200
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            client.ask("GET", "/policy")
        assert bench.client("node-node1").ask("GET", "/policy").status == 200
    finally:
        for stream in held:
            stream.close()
    assert client.ask("GET", "/policy").status == 200


def burst(client: Client, request: bytes, count: int) -> list[Answer]:
    """Many requests over one kept connection."""
    plain = socket_in(client.namespace, client.address, 10)
    with (
        client.context.wrap_socket(plain, server_hostname=client.address[0]) as stream,
        stream.makefile("rb") as reader,
    ):
        answers = []
        for _ in range(count):
            stream.sendall(request)
            answers.append(read_answer(reader))
            if answers[-1].headers.get("connection") == "close":
                break
        return answers


def test_requests_per_certificate_are_bounded(bench: Bench) -> None:
    answers = burst(bench.client("node-node2"), b"GET /policy HTTP/1.1\r\nHost: x\r\n\r\n", 260)
    statuses = [answer.status for answer in answers]
    assert statuses[0] == 200
    assert statuses[-1] == 429
    assert set(statuses) == {200, 429}
    assert bench.client("node-node1").ask("GET", "/policy").status == 200
    time.sleep(21)  # node2's rate is forgotten


def test_a_clamped_intake_refuses_samples_and_keeps_heartbeats(bench: Bench, node1: Client) -> None:
    """A rack clamps at once (429, the sender keeps what it has); the policy process is not hindered (D8)."""
    intake = "/var/lib/sideband/rack/intake.map"
    body = snappy(
        write_request(
            [([("__name__", "bulk"), ("m", "x" * 900), ("n", str(n))], [(1.0, now())]) for n in range(60)]
        )
    )
    assert len(body) > 50000
    bench.admin(f"set map {intake} bytes_per_second 500")
    try:
        statuses = [node1.ask("POST", "/api/v1/write", body, REMOTE_WRITE).status for _ in range(4)]
        assert statuses == [204, 429, 429, 429]  # 500 B/s over 60 s admit one batch of 54 kB, no second
        assert bench.client("node-node2").ask("POST", "/api/v1/write", body, REMOTE_WRITE).status == 204
        mark = marker()
        assert node1.push_text(f'beat{{m="{mark}"}} 1\n').status == 204
        assert node1.ask("GET", "/policy").status == 200
        assert_own(bench, mark)
        assert refused(bench)["intake"] >= 3
        bench.admin(f"set map {intake} bytes_per_second 100000")
        assert node1.ask("POST", "/api/v1/write", body, REMOTE_WRITE).status == 204
    finally:
        bench.admin(f"set map {intake} bytes_per_second 0")
    assert node1.ask("POST", "/api/v1/write", body, REMOTE_WRITE).status == 204


def test_no_refusal_makes_a_sender_drop_its_block(bench: Bench, node1: Client) -> None:
    """Case 50: 400 and 409 are dropped at once; none of the refusals above uses them."""
    configuration = (bench.root / "etc/sideband/rack/haproxy.cfg").read_text()
    statuses = set(map(int, re.findall(r"deny_status (\d+)", configuration)))
    assert statuses == {403, 405, 411, 413, 429}
    for path in ("region", "lake"):
        text = (bench.root / f"etc/sideband/{path}/haproxy.cfg").read_text()
        assert not {400, 409} & set(map(int, re.findall(r"deny_status (\d+)", text)))


# -- the document and the clock


def test_the_document_is_answered_from_the_map_conditionally(bench: Bench, node1: Client) -> None:
    documents = "/var/lib/sideband/rack/documents.map"
    first = node1.ask("GET", "/policy")
    assert (first.status, json.loads(first.body)) == (200, {"documents": []})
    text = json.dumps(
        {"documents": [{"document": '{"a":"%[src] \\ \' ü"}', "signature": "-----BEGIN\nx\n" * 2500}]}
    )
    assert len(text) > 30000
    for key, value in (("body", base64.b64encode(text.encode()).decode()), ("etag", "0123abcd")):
        assert bench.admin(f"set map {documents} {key} {value}").strip() == ""
    try:
        answer = node1.ask("GET", "/policy", headers=[("If-None-Match", first.headers["etag"])])
        assert (answer.status, answer.text) == (200, text)
        again = node1.ask("GET", "/policy?x=1", headers=[("If-None-Match", answer.headers["etag"])])
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", answer.headers["etag"])
        assert node1.ask("GET", "/policy", headers=[("If-None-Match", '"0123abcde"')]).status == 200
    finally:
        bench.admin(f"set map {documents} body {base64.b64encode(first.body).decode()}")
        bench.admin(f"set map {documents} etag none")


def test_every_answer_carries_the_racks_clock(node1: Client) -> None:
    for answer in (node1.ask("GET", "/policy"), node1.ask("GET", "/x"), node1.push_text("beat 1\n"),
                   node1.ask("GET", "/policy", headers=[("If-None-Match", '"none"')])):  # fmt: skip
        assert abs(parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()) < 3


# -- secrets


def test_the_random_name_stands_in_no_argument_list_and_no_readable_file(bench: Bench) -> None:
    secret = random_name(bench)
    assert re.fullmatch(r"__id_[0-9a-f]{16}", secret)
    for process in bench.processes.values():
        for child in (
            Path("/proc") / str(process.pid) / "task" / str(process.pid) / "children"
        ).read_text().split() + [str(process.pid)]:
            assert secret.encode() not in (Path("/proc") / child / "cmdline").read_bytes()
    for path in (bench.root / "etc/sideband").rglob("*"):
        if path.is_file() and secret.encode() in path.read_bytes():
            assert path.name == "identity.env"
            assert path.stat().st_mode & 0o777 == 0o600
    for path in (bench.root / "etc/sideband").rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes():
            assert path.stat().st_mode & 0o007 == 0


# -- region and lake


@pytest.mark.parametrize(
    ("port", "address", "path", "allowed"),
    [
        (8428, "10.30.0.31", "/api/v1/write", "rack-rack1"),
        (8429, "10.30.0.41", "/hot/api/v1/write", "region-region1"),
        (8429, "10.30.0.41", "/minute/api/v1/write", "region-region1"),
        (8430, "10.30.0.41", "/minute/api/v1/query?query=1", "gateway-gateway1"),
        (8430, "10.30.0.41", "/minute/api/v1/query_range?query=1&start=-1m&step=30s", "gateway-gateway1"),
        (8430, "10.30.0.41", "/hot/api/v1/query?query=1", "gateway-gateway1"),
        (8430, "10.30.0.41", "/minute/api/v1/label/rack/values?start=-1m", "gateway-gateway1"),
    ],
)
def test_each_hop_hears_its_own_function_only(
    bench: Bench, port: int, address: str, path: str, allowed: str
) -> None:
    method = "GET" if port == 8430 else "POST"
    body = b"" if port == 8430 else snappy(b"")
    for identity in (
        "node-node1",
        "rack-rack1",
        "region-region1",
        "lake-lake1",
        "gateway-gateway1",
        "tenant-alpha",
    ):
        client = bench.client(identity, address, port)
        headers = REMOTE_WRITE if body else ()
        answer = client.ask(method, path, body, headers)
        assert answer.status == (403 if identity != allowed else answer.status), identity
        if identity == allowed:
            assert answer.status in (200, 204), answer
            other = "GET" if method == "POST" else "PUT"
            assert client.ask(other, path.split("?")[0], b"").status == 405
            for wrong in (
                "/api/v1/status/tsdb",
                "//" + path[1:],
                "/minute/api/v1/admin/tsdb/delete_series",
                "/hot/-/quit",
            ):
                assert client.ask(method, wrong, body).status == 403


def test_every_sample_is_hot_and_the_minute_tier_has_composable_results_only(
    bench: Bench, node1: Client
) -> None:
    mark = marker()
    for step in range(1, 8):
        text = f'gauge{{m="{mark}"}} {step}\nevents_total{{m="{mark}"}} {100 + 10 * step}\n'
        assert node1.push_text(text).status == 204
        time.sleep(1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(bench.hot(f'gauge{{m="{mark}"}}')[0]["values"]) < 7:
        time.sleep(0.3)
    assert len(bench.hot(f'gauge{{m="{mark}"}}')[0]["values"]) == 7

    def minute(query: str) -> list[dict[str, object]]:
        found = json.loads(bench.plain(8532, "/api/v1/query?query=" + urllib.parse.quote(query)))
        return found["data"]["result"]

    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        count = minute(f'sum(sum_over_time({{__name__="gauge:5s_count_samples",m="{mark}"}}[10m]))')
        if count and count[0]["value"][1] == "7":  # type: ignore[index]
            break
        time.sleep(0.5)
    bench.plain(8532, "/internal/force_flush")
    names = {row["metric"]["__name__"] for row in minute(f'last_over_time({{m="{mark}"}}[10m])')}  # type: ignore[index]
    outputs = {
        "gauge:5s_sum_samples",
        "gauge:5s_count_samples",
        "gauge:5s_min",
        "gauge:5s_max",
        "events_total:5s_increase",
    }
    assert names == outputs

    def value(query: str) -> float:
        return float(minute(query)[0]["value"][1])  # type: ignore[index]

    assert value(f'sum_over_time({{__name__="gauge:5s_sum_samples",m="{mark}"}}[10m])') == 28
    assert value(f'sum_over_time({{__name__="events_total:5s_increase",m="{mark}"}}[10m])') == 60
    assert value(f'min_over_time({{__name__="gauge:5s_min",m="{mark}"}}[10m])') == 1
    assert value(f'max_over_time({{__name__="gauge:5s_max",m="{mark}"}}[10m])') == 7


# -- whose work it is (A2, Q5; docs/adr/0009)


def uuid() -> str:
    return f"GPU-{next(SERIAL):08x}"


def minute_when(bench: Bench, selector: str, count: int = 1, seconds: float = 60) -> list[dict[str, str]]:
    """The labels of every series that the minute tier has of the last minutes."""
    path = "/api/v1/series?start=-10m&match[]=" + urllib.parse.quote(selector)
    deadline = time.monotonic() + seconds
    while True:
        found: list[dict[str, str]] = json.loads(bench.plain(8532, path))["data"]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def test_a_gpus_series_is_one_in_the_hot_tier_and_its_jobs_from_the_minute_on(
    bench: Bench, node1: Client
) -> None:
    one, other = uuid(), uuid()
    same = f'DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="{other}",job="slurm-72",tenant="alpha"}} 10\n'
    for step, job in enumerate(("slurm-71", "slurm-72", "slurm-72"), 1):
        own = f'job="{job}",tenant="alpha"'
        text = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{one}",{own},surplus="x"}} {step}\n{same}'
        text += f"sideband_job_workers{{{own}}} 2\n"
        assert node1.push_text(text).status == 204
        time.sleep(1.1)
    deadline = time.monotonic() + 60
    while len((series := bench.hot_when(f'{{UUID="{one}"}}')[0])["values"]) < 3:
        assert time.monotonic() < deadline, series
        time.sleep(0.3)
    assert series["metric"] == {
        "__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "UUID": one, "node": "node1", "rack": "rack1",
        "site": "lab",
    }  # fmt: skip
    assert [value for _, value in series["values"]] == ["1", "2", "3"]
    assert bench.hot('{__name__=~"sideband_job_.*"}') == []
    for name in ("max", "sum_samples"):
        mine = minute_when(bench, f'{{__name__="DCGM_FI_DEV_GPU_UTIL:5s_{name}",UUID="{one}"}}', 2)
        assert {(row["job"], row["tenant"], row["node"]) for row in mine} == {
            ("slurm-71", "alpha", "node1"), ("slurm-72", "alpha", "node1"),
        }  # fmt: skip
    jobs = minute_when(bench, '{__name__="job:DCGM_FI_DEV_GPU_UTIL:5s_count_samples",job="slurm-72"}')
    name = "job:DCGM_FI_DEV_GPU_UTIL:5s_count_samples"
    assert jobs == [{"__name__": name, "job": "slurm-72", "tenant": "alpha", "site": "lab"}]
    path = "/api/v1/query?query=" + urllib.parse.quote(
        f'sum(sum_over_time({{__name__="{name}",job="slurm-72"}}[10m]))'
    )
    bench.plain(8532, "/internal/force_flush")
    assert json.loads(bench.plain(8532, path))["data"]["result"][0]["value"][1] == "5"
    assert minute_when(bench, '{__name__="sideband_job_workers:5s_min",job="slurm-71"}')


@pytest.mark.parametrize(
    ("labels", "job", "tenant"),
    [
        ('job="slurm-7",tenant="alpha"', "slurm-7", "alpha"),
        ('job="slurm-7",tenant="beta"', "slurm-7", "unassigned"),  # a tenant of another rack
        ('job="slurm-7",tenant="alphas"', "slurm-7", "unassigned"),
        ('job="slurm-7"', "slurm-7", "unassigned"),
        ('tenant="alpha"', None, "alpha"),  # several jobs of one tenant share it
        ('tenant="beta"', None, "unassigned"),
        ('job="no job at all",tenant="alpha"', None, "alpha"),
        ("", None, None),
    ],
)
def test_a_node_lies_about_its_own_racks_tenants_at_most(
    bench: Bench, node1: Client, labels: str, job: str | None, tenant: str | None
) -> None:
    one = uuid()
    comma = "," if labels else ""
    assert node1.push_text(f'DCGM_FI_DEV_GPU_TEMP{{UUID="{one}"{comma}{labels}}} 40\n').status == 204
    (row,) = minute_when(bench, f'{{__name__="DCGM_FI_DEV_GPU_TEMP:5s_max",UUID="{one}"}}')
    assert (row.get("job"), row.get("tenant")) == (job, tenant)


def test_a_tenant_stands_on_gpus_and_jobs_alone(bench: Bench, node1: Client) -> None:
    mark = marker()
    text = f'node_load1{{m="{mark}",tenant="alpha"}} 1\nsideband_job_info{{tenant="alpha",name="{mark}"}} 1\n'
    assert node1.push_text(text).status == 204
    (series,) = bench.hot_when(f'{{m="{mark}"}}')
    assert "tenant" not in series["metric"]
    time.sleep(7)
    assert minute_when(bench, f'{{name="{mark}"}}', seconds=0) == []  # nobody's job


def test_curves_are_kept_whole_and_their_nodes_are_believed(bench: Bench, node1: Client) -> None:
    """By the mark of the receiver's own programs alone; each sample once, with the line's own time."""
    job = f"slurm-{next(SERIAL)}"
    began = now() - 120_000

    def loss(node: str, value: float, time: int) -> str:
        return f'sideband_train_loss{{job="{job}",tenant="alpha",node="{node}"}} {value} {time}\n'

    body = "".join(loss("node2", step / 10, began + step * 1000) for step in range(60))
    body += loss("node3", 9, began) + loss("elsewhere", 9, began)
    body += f"sideband_curves_lines_total 7 {now()}\n"
    path = "/api/v1/import/prometheus?extra_label="
    for secret in (f"curves_{random_name(bench)}=1", "curves_=1", f"curves_{random_name(bench)}=2"):
        for _ in range(2):  # an outage: what was sent is sent again
            bench.plain(8530, path + secret, "POST", body.encode())
    assert node1.push_text(loss("node2", 7, began + 500)).status == 204
    found = minute_when(bench, f'{{__name__="sideband_train_loss",job="{job}"}}', 2)
    assert {(row["node"], row["rack"], row["tenant"]) for row in found} == {
        ("node2", "rack1", "alpha"), ("node1", "rack1", "alpha"),
    }  # fmt: skip
    bench.plain(8532, "/internal/force_flush")
    path = "/api/v1/export?match[]=" + urllib.parse.quote(f'sideband_train_loss{{job="{job}",node="node2"}}')
    (series,) = [json.loads(line) for line in bench.plain(8532, path).splitlines()]
    assert series["timestamps"] == [began + step * 1000 for step in range(60)]
    assert series["values"] == [step / 10 for step in range(60)]
    assert bench.hot('{__name__=~"sideband_train_.*"}') == []
    (own,) = bench.hot_when("sideband_curves_lines_total")
    assert own["metric"]["node"] == "rack1"


def test_a_late_spool_is_stored_and_an_outage_of_the_hot_tier_is_made_up(bench: Bench, node1: Client) -> None:
    mark = marker()
    late = [
        ([("__name__", "late"), ("m", mark)], [(float(n), now() - 3000000 + n * 5000) for n in range(100)])
    ]
    assert node1.push([([("__name__", "late"), ("m", mark)], [(1.0, now())])]).status == 204
    bench.hot_when(f'late{{m="{mark}"}}')
    bench.stop("sideband-hot.service")
    assert node1.push(late).status == 204
    time.sleep(2)
    bench.start("sideband-hot.service")
    bench.hot_ready()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and len(bench.hot(f'late{{m="{mark}"}}')[0]["values"]) < 101:
        time.sleep(0.5)
    assert len(bench.hot(f'late{{m="{mark}"}}')[0]["values"]) == 101


def test_the_hot_tier_keeps_flowing_after_what_it_cannot_store(bench: Bench, node1: Client) -> None:
    """Acceptance 5, second half. What such a block costs is told by docs/adr/0006-time-in-the-hot-tier.md."""
    instant = now()
    poison: list[list[tuple[list[tuple[str, str]], list[tuple[float, int]]]]] = [
        [([("__name__", "far"), ("m", "future")], [(1.0, instant + 3600000)])],
        [([("__name__", "far"), ("m", "past")], [(1.0, 1000)])],
        [([("__name__", "far"), ("m", "same")], [(1.0, instant), (2.0, instant), (3.0, instant)])],
        [([("__name__", "no name at all")], [(1.0, instant)]), ([("x", "1")], [(1.0, instant)])],
        [([("__name__", "far"), *((f"l{n}", "v" * 500) for n in range(60))], [(1.0, instant)])],
    ]
    for block in poison:
        assert node1.push(block).status == 204
        time.sleep(1.5)  # each in a block of its own
    for who in ("node-node1", "node-node2"):
        mark = marker()
        assert bench.client(who).push([([("__name__", "after"), ("m", mark)], [(1.0, now())])]).status == 204
        assert len(bench.hot_when(f'{{m="{mark}"}}')) == 1


# -- gateway


@pytest.fixture(scope="module")
def stored(bench: Bench) -> Bench:
    bench.plain(8532, "/api/v1/import/prometheus", "POST", as_text(series()))
    bench.plain(8532, "/internal/force_flush")
    return bench


def asker(bench: Bench, identity: str = "tenant-alpha") -> Client:
    return bench.client(identity, "10.40.0.51", 8443)


def ask(bench: Bench, query: str, tenant: str = "alpha", path: str = "/api/v1/query") -> Answer:
    return asker(bench, f"tenant-{tenant}").ask("GET", f"{path}?{query}")


def reason(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["reason"]


def labels(answer: Answer, name: str) -> list[str]:
    assert answer.status == 200, answer
    return sorted(row["metric"].get(name, "") for row in json.loads(answer.body)["data"]["result"])


def test_who_asks_is_known_by_the_certificate(stored: Bench) -> None:
    """There is something to steal, and each sees its own through the whole way, by GET and by POST."""
    assert labels(ask(stored, "query=gpu_util"), "tenant") == ["alpha"] * 5
    assert set(labels(ask(stored, "query=gpu_util", "beta"), "tenant")) == {"beta"}
    everything = asker(stored, "administrator-ops").ask("GET", "/api/v1/query?query=gpu_util&tier=minute")
    assert foreign(everything) >= 8
    form = (b"query=sum(gpu_util)", [("Content-Type", "application/x-www-form-urlencoded")])
    answer = asker(stored).ask("POST", "/api/v1/query", *form)
    assert json.loads(answer.body)["data"]["result"][0]["value"][1] == "5"
    assert answer.headers["x-sideband-tier"] == "minute"
    assert json.loads(ask(stored, "start=-1h", path="/api/v1/label/tenant/values").body)["data"] == ["alpha"]


@pytest.mark.parametrize("header", ["X-Sideband-Identity", "x-sideband-identity", "X-SIDEBAND-IDENTITY"])
def test_what_a_client_says_of_itself_is_thrown_away(stored: Bench, header: str) -> None:
    given = [(header, "tenant/beta"), (header, "administrator/ops"), ("X_Sideband_Identity", "tenant/beta")]
    answer = asker(stored).ask("GET", "/api/v1/query?query=gpu_util", headers=given)
    assert (labels(answer, "tenant"), foreign(answer)) == (["alpha"] * 5, 0)


@pytest.mark.parametrize("path", [path for path in PATHS if path.startswith("/")])
def test_case_70_every_other_path_is_refused(stored: Bench, path: str) -> None:
    answer = asker(stored).ask("GET", path if "?" in path else f"{path}?query=gpu_util")
    assert (reason(answer), "/api/v1/query_range" in answer.text) == ((403, "path"), True)


@pytest.mark.parametrize("request_bytes", ODD_REQUESTS.values(), ids=ODD_REQUESTS)
def test_an_odd_request_ends_at_the_front(stored: Bench, request_bytes: bytes) -> None:
    answer = asker(stored).raw(request_bytes)
    assert answer.status in (400, 403, 405, 411), answer
    assert foreign(answer) == 0 if answer.body.startswith(b"{") else answer.status == 400


def test_a_question_that_is_too_long_ends_at_the_front(stored: Bench) -> None:
    long = "query=" + "x" * 8200
    assert reason(ask(stored, long)) == (413, "size")
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    assert reason(asker(stored).ask("POST", "/api/v1/query", long.encode(), form)) == (413, "size")
    assert reason(asker(stored).ask("PUT", "/api/v1/query")) == (405, "method")


def test_a_question_arrives_as_it_was_asked(stored: Bench) -> None:
    """Decoded, parsed and printed again without loss; the label comes back from the store."""
    for text in ("a b", "a&b=c", "100%", "%41", "#x", "a;b", "ü 节点", "{}[]()", "~^$*", "a,b|c", "a\\\\b"):
        query = f'label_replace(vector(1), "said", "{text.replace("$", "$$")}", "", "")'
        answer = ask(stored, "query=" + urllib.parse.quote(query, safe=""))
        assert labels(answer, "said") == [text.replace("\\\\", "\\")], answer


@pytest.mark.parametrize(
    "identity", ["node-node1", "rack-rack1", "region-region1", "lake-lake1", "gateway-gateway1"]
)
def test_who_is_nobody_of_the_site_is_refused(stored: Bench, identity: str) -> None:
    answer = asker(stored, identity).ask("GET", "/api/v1/query?query=load")
    assert (reason(answer), "sideband_tenants" in answer.text) == ((403, "identity"), True)


def test_an_administrators_question_leaves_its_line_with_the_hot_tier(stored: Bench) -> None:
    answer = asker(stored, "administrator-ops").ask("GET", "/api/v1/query?query=up%7Bnode%3D%22nowhere%22%7D")
    assert (answer.status, answer.headers["x-sideband-tier"]) == (200, "hot")
    audit = stored.root / "var/lib/sideband/gateway/audit"
    (path,) = audit.iterdir()
    line = json.loads(path.read_text().splitlines()[-1])
    assert (line["who"], line["raw"], line["status"]) == ("administrator/ops", True, 200)
    assert (audit.stat().st_mode & 0o777, path.stat().st_uid) == (0o700, 892)


def test_a_heavy_question_is_worked_on_by_the_other_program(stored: Bench) -> None:
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    body = b"query=sum(gpu_util)&start=-80d&end=now&step=3600"
    job = json.loads(asker(stored).ask("POST", "/api/v1/jobs", body, form).body)["data"]["id"]
    deadline = time.monotonic() + 30
    while (
        state := json.loads(asker(stored).ask("GET", f"/api/v1/jobs/{job}").body)["data"]["state"]
    ) != "done":
        assert state in ("queued", "running"), state
        assert time.monotonic() < deadline
        time.sleep(0.2)
    result = asker(stored).ask("GET", f"/api/v1/jobs/{job}/result")
    assert {value for _, value in json.loads(result.body)["data"]["result"][0]["values"]} == {"5"}
    assert asker(stored, "tenant-beta").ask("GET", f"/api/v1/jobs/{job}").status == 404


def test_while_querygate_is_away_the_front_says_so_and_it_comes_back(stored: Bench) -> None:
    stored.stop("sideband-gateway-query.service")
    answer = ask(stored, "query=load")
    assert reason(answer) == (503, "front")
    stored.start("sideband-gateway-query.service")
    deadline = time.monotonic() + 60
    while ask(stored, "query=load").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_one_tenant_does_not_use_up_anothers_share(stored: Bench) -> None:
    request = b"GET /api/v1/query?query=1 HTTP/1.1\r\nHost: x\r\n\r\n"
    statuses = {answer.status for answer in burst(asker(stored, "tenant-beta"), request, 230)}
    assert statuses == {200, 429}
    assert ask(stored, "query=load").status == 200
