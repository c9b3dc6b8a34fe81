"""What a fragment may hold: whatever would fail half way, or reach beyond its owner, is refused by its place
before anything is written (C9, case 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sideband.state import candidate, shaping
from sideband.state.fragment import KEYS
from sideband.state.planner import Planner
from sideband.state.system import StateError
from state_kit import FakeHost, tree


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "host")


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        ({"fils": []}, "unknown key 'fils'"),
        ({"files": [{"path": "etc/x", "content": ""}]}, "must be an absolute path"),
        ({"files": [{"path": "/etc/../x", "content": ""}]}, "must be an absolute path"),
        ({"files": [{"path": "/etc/x"}]}, "exactly one of content"),
        (
            {"files": [{"path": "/etc/x", "content": "", "mode": 420}]},
            r"files\[0\]\.mode: must be quoted text",
        ),
        ({"files": [{"path": "/etc/x", "content": "", "create": "false"}]}, "must be true or false"),
        (
            {"files": [{"path": "/etc/x", "content": "", "owner": "nobody-here"}]},
            "user nobody-here does not exist",
        ),
        ({"guarded": "false"}, "guarded: must be true or false"),
        ({"units": [{"name": "x", "running": True}]}, "needs its ending"),
        ({"units": [{"name": "x.service", "running": "no"}]}, "must be true or false"),
        ({"archives": [{"path": "/opt/x", "url": "u", "sha256": "12"}]}, "64 hexadecimal digits"),
        ({"links": [{"path": "/a"}]}, r"links\[0\]: target is required"),
        ({"links": ["/a"]}, r"links\[0\]: must be a mapping"),
        ({"network": {"reload": "ifup"}}, r"network\.reload: must be one of"),
    ],
)
def test_a_faulty_fragment_is_refused_with_its_place_case_7(
    host: FakeHost, fragment: dict[str, Any], message: str
) -> None:
    before = tree(host.base)
    with pytest.raises(StateError, match=message):
        host.present(fragment, check=True)
    assert tree(host.base) == before


UNIT = "/etc/systemd/system/x.service"
TABLE = {"path": "/etc/x.nft", "table": "sideband", "ruleset": "table netdev sideband {\n}\n"}
NO_MODE = 'must be three or four octal digits such as "0644"'
NO_PATH = "must be an absolute path without `.`, `..`, `//` or a trailing slash"
NO_UNITS = ("../../passwd", "../zz.service", "--zz.service", "*.service", "a b.service", "[a].service")
NO_SECONDS = {0: "0", -5: "-5", 1: "1", 40.5: "40.5", "soon": "'soon'"}
NO_UNIT = "must be one unit's name: no path, no option, no pattern"


def a_file(**more: Any) -> dict[str, Any]:
    return {"files": [{"path": "/etc/x", "content": "", **more}]}


def a_ruleset(text: Any, **more: Any) -> dict[str, Any]:
    return {"nftables": {**TABLE, "ruleset": text, **more}}


def only_its_own(line: str) -> str:
    return (
        f"nftables.ruleset: may name its own table netdev sideband only (got {line!r}); "
        "what another table needs, its own owner brings"
    )


SHAPE: dict[str, Any] = {
    **dict.fromkeys(shaping.KEYS, 9),
    "device": "edge0",
    "default_class": 99,
    "classes": [{"id": 10, "tos": 32, **dict.fromkeys(shaping.LEAF, 9)}],
    "default": dict.fromkeys(shaping.LEAF, 9),
}
REFUSALS: list[tuple[dict[Any, Any], str]] = [
    ({5: []}, "fragment: unknown key 5; known are "),
    ({"files": 5}, "files: must be a list (got a number); put it in brackets"),
    ({"files": [{5: "x", "path": "/x"}]}, "files[0]: unknown key 5; known are "),
    ({"packages": "--purge"}, "packages: must be a list (got text); put it in brackets"),
    ({"packages": {"a": "b"}}, "packages: must be a list (got a mapping)"),
    ({"packages": ["--purge"]}, "packages[0]: must be a package's name (got '--purge')"),
    ({"groups": ["a b"]}, "groups[0]: must be a group's name (got 'a b')"),
    ({"users": [{"name": "a b;c"}]}, "users[0].name: must be a user's name (got 'a b;c')"),
    (
        {"users": [{"name": "a", "groups": "sudo"}]},
        "users[0].groups: must be a list (got text); put it in brackets",
    ),
    (
        {"users": [{"name": "a"}, {"name": "a"}]},
        "users[1].name: a is named twice in the fragment; first as users[0].name",
    ),
    ({"users": [{"name": "a", "shell": "sh"}]}, f"users[0].shell: {NO_PATH} (got 'sh')"),
    # paths
    (a_file(path="/etc/./passwd"), f"files[0].path: {NO_PATH} (got '/etc/./passwd')"),
    (a_file(path="/"), f"files[0].path: {NO_PATH} (got '/')"),
    (a_file(path=5), "files[0].path: must be text (got 5)"),
    (a_file(path="/etc/a\0b"), "files[0].path: must hold no NUL character (got '/etc/a\\x00b')"),
    (a_file(path="/etc/a\nb"), "files[0].path: must be one line without control characters (got "),
    (a_file(path="/etc/\ud800"), "files[0].path: must hold whole characters only; half of a surrogate pair"),
    (
        a_file(path="/" + "a/" * 2500 + "x"),
        "files[0].path: must have at most 4000 bytes, and each name in it at most 240 (got '/a/a/",
    ),
    (a_file(path="/etc/" + "a" * 250), "files[0].path: must have at most 4000 bytes, and each name in it at"),
    (
        {"files": [{"path": "/etc/zzx", "content": ""}, {"path": "/etc/zzx/y", "content": ""}]},
        "files[1].path: /etc/zzx/y lies below /etc/zzx, a file (files[0].path); only a directory can hold it",
    ),
    (
        {"links": [{"path": "/opt/l", "target": "/srv"}], "directories": [{"path": "/opt/l/d/e"}]},
        "directories[0].path: /opt/l/d/e lies below /opt/l, a link (links[0].path); only a directory can",
    ),
    (
        a_file(path="/etc/passwd/x"),
        "/etc/passwd/x: /etc/passwd is there and no directory; move it away by hand, or name another path",
    ),
    # files
    *[
        (a_file(mode=mode), f"files[0].mode: {NO_MODE} (got {mode!r})")
        for mode in ("-1", "77777", "6_4_4", "0o644", "u=rw", "9", "")
    ],
    (a_file(content=None), "files[0].content: must be text (got nothing)"),
    (a_file(content={"a": 1}), "files[0].content: must be text (got a mapping); to_json makes text of it"),
    (a_file(content=5), "files[0].content: must be text (got a number)"),
    (
        {"files": [{"path": "/etc/x", "content_base64": "no base"}]},
        "files[0].content_base64: is not base64",
    ),
    (a_file(owner="a b"), "files[0].owner: must be the name or number of a user (got 'a b')"),
    (a_file(group=["a"]), "files[0].group: must be text (got a list)"),
    (
        a_file(check="sh -c 'x"),
        """files[0].check: must be one command whose quotes are closed (got "sh -c 'x")""",
    ),
    (a_file(check="  "), "files[0].check: must be one command whose quotes are closed (got '  ')"),
    (
        a_file(path=UNIT, content="ExecStart=/bin/x\n"),
        "files[0].content: a unit's file begins with a section such as [Unit] (got 'ExecStart=/bin/x')",
    ),
    (
        a_file(path=UNIT, content="# only\n[Unit]\nDescription=x\n"),
        "files[0].content: has no section [Service]; without it systemd starts no x.service",
    ),
    (a_file(path=UNIT), "files[0].content: has no section [Service]; without it systemd starts no x.service"),
    (
        a_file(path=f"{UNIT}.d/more.conf", content="Nice=1\n"),
        "files[0].content: a unit's file begins with a section such as [Unit] (got 'Nice=1')",
    ),
    # links and archives
    ({"links": [{"path": "/a", "target": None}]}, "links[0]: target is required"),
    ({"links": [{"path": "/a", "target": ""}]}, "links[0].target: must not be empty (got '')"),
    *[
        (
            {"links": [{"path": "/a/b", "target": target}]},
            f"links[0].target: must lead away from /a/b: a link to itself leads nowhere (got {target!r})",
        )
        for target in ("/a/b", "b", "../a/./b", "/a/b/c")
    ],
    *[
        (
            {"archives": [{"path": "/opt/x", "url": url, "sha256": "ab" * 32}]},
            f"archives[0].url: must be the http or https address of a file, or file:/// and its path"
            f" (got {url!r})",
        )
        for url in (
            "file://elsewhere/x",
            "file:x",
            "file:///a b",
            "http://",
            "http://h:port/x",
            "http://h/a b",
            "ftp://h/x",
            "http://[h",
        )
    ],
    (
        {"archives": [{"path": "/opt/x", "url": "http://h/x", "sha256": "ab" * 32, "format": "zip"}]},
        "archives[0].format: must be one of deb, tar (got 'zip')",
    ),
    # units
    *[
        ({key: [{"name": name} if key == "units" else name]}, f"{place}: {NO_UNIT} (got {name!r})")
        for key, place in (("units", "units[0].name"), ("masked", "masked[0]"))
        for name in NO_UNITS
    ],
    ({"masked": ["haproxy"]}, "masked[0]: needs its ending, for example haproxy.service (got 'haproxy')"),
    ({"masked": "haproxy.service"}, "masked: must be a list (got text); put it in brackets"),
    ({"units": [{"name": "a.conf"}]}, "units[0].name: must end in one of .service, .socket, "),
    (
        {"units": [{"name": "a.service"}, {"name": "a.service", "running": True}]},
        "units[1].name: a.service is named twice in the fragment; first as units[0].name",
    ),
    *[
        (
            {"masked": [masked], "units": [{"name": name, switch: True}]},
            f"units[0].name: {name} cannot be masked and enabled or running at once; "
            "take it from `masked` or from here",
        )
        for masked, name, switch in (
            ("a.service", "a.service", "running"),
            ("a@.service", "a@b.service", "enabled"),
        )
    ],
    (
        {"masked": ["x.service"], **a_file(path=UNIT, content="[Service]\n")},
        f"masked[0]: {UNIT} is named twice in the fragment; first as files[0].path",
    ),
    *[
        (
            {"units": [{"name": "a.service", key: "/etc/x"}]},
            f"units[0].{key}: must be a list (got text); put it in brackets",
        )
        for key in ("restart_on", "reload_on")
    ],
    (
        {"units": [{"name": "a.service", "restart_on": ["x"]}]},
        f"units[0].restart_on[0]: {NO_PATH} (got 'x')",
    ),
    # the switch
    *[
        ({"guard_seconds": value}, f"guard_seconds: must be a whole number between 5 and 86400 (got {said})")
        for value, said in (*NO_SECONDS.items(), ([1], "a list"), (True, "true"))
    ],
    # rules
    ({"nftables": "x"}, "nftables: must be a mapping (got text)"),
    ({"nftables": [1]}, "nftables: must be a mapping (got a list)"),
    (a_ruleset(5), "nftables.ruleset: must be text (got 5)"),
    (a_ruleset("x", family="ipx"), "nftables.family: must be one of ip, ip6, inet, arp, bridge, netdev (got"),
    (a_ruleset("x", table="a b"), "nftables.table: must be a table's name (got 'a b')"),
    *[
        (a_ruleset(f"{TABLE['ruleset']}{text}"), only_its_own(line))
        for text, line in (
            ("flush ruleset\n", "flush ruleset"),
            ("flush ruleset netdev", "flush ruleset netdev"),
            ("table ip nat { }; delete table ip nat\n", "table ip nat { }"),
            ("delete table ip nat # table netdev sideband", "delete table ip nat"),
            ("table netdev sideband2 { }", "table netdev sideband2 { }"),
            ("table sideband { }", "table sideband { }"),
            ("add rule inet filter input accept", "add rule inet filter input accept"),
            ("delete \\\n table ip nat", "delete table ip nat"),
            ("define x = nat\ndelete table ip $x", "delete table ip $x"),
            ("flush table ip nat", "flush table ip nat"),
            ("list tables", "list tables"),
            ("reset netdev sideband", "reset netdev sideband"),
        )
    ],
    *[
        (a_ruleset(text), "nftables.ruleset: must hold its rules itself; what `include` reads, nobody checks")
        for text in (
            'include "/x.nft"',
            '\\\n include "/x.nft"',
            'table netdev sideband {\n include "/x.nft"\n}',
        )
    ],
    (a_ruleset("# nothing\n"), "nftables.ruleset: leaves no table netdev sideband; it needs `table netdev"),
    (a_ruleset("table netdev sideband {"), "nftables.ruleset: has a brace that is not closed"),
    (a_ruleset("table netdev sideband { } }"), "nftables.ruleset: has a closing brace too many"),
    (a_ruleset('table netdev sideband { comment "x }'), "nftables.ruleset: has a quote that is not closed"),
    # shapes, network, needs
    ({"shapes": [{"device": "edge0"}]}, "shapes[0]: default_class is required"),
    (
        {"shapes": [{**SHAPE, "classes": [{"id": 1, **dict.fromkeys(shaping.LEAF, 9)}]}]},
        "shapes[0]: class id 1 is the root's; number the leaves from 10",
    ),
    (
        {"shapes": [{**SHAPE, "classes": [{"id": 10, **dict.fromkeys(shaping.LEAF, "fast")}]}]},
        "shapes[0].classes[0].rate_bits_per_second: must be a whole number between 1 and 1000000000000000",
    ),
    (
        {"shapes": [SHAPE, SHAPE]},
        "shapes[1].device: edge0 is named twice in the fragment; first as shapes[0]",
    ),
    ({"network": {"reload": ["x"]}}, "network.reload: must be text (got a list)"),
    (
        {"network": {"reload": "ifreload", "vlans": [{"port": "swp1", "vlan": "x"}]}},
        "network.vlans[0].vlan: must be a whole number between 1 and 4094 (got 'x')",
    ),
    *[
        (
            {"network": {"reload": "networkctl", "addresses": [{"device": "edge0", "address": address}]}},
            "network.addresses[0].address: must be an address with its prefix length, such as 10.0.0.1/24",
        )
        for address in ("10.0.0.1", "300.0.0.1/24", "10.0.0.1/255.255.255.0")
    ],
    (
        {"network": {"reload": "networkctl", "addresses": [{"device": "a/b", "address": "10.0.0.1/24"}]}},
        "network.addresses[0].device: must be a network device's name, at most 15 characters (got 'a/b')",
    ),
    (
        {"needs": [{"name": "x", "address": "10.0.0.1", "port": "http"}]},
        "needs[0].port: must be a whole number between 1 and 65535 (got 'http')",
    ),
    (
        {"needs": [{"name": "x", "address": "10.0.0.1", "port": True}]},
        "needs[0].port: must be a whole number between 1 and 65535 (got true)",
    ),
    (
        {"needs": [{"name": "x", "address": "a b", "port": 1}]},
        "needs[0].address: must be an address or a host's name (got 'a b')",
    ),
]


@pytest.mark.parametrize(("fragment", "message"), REFUSALS)
def test_what_would_fail_later_or_reach_too_far_is_refused_in_words(
    host: FakeHost, fragment: dict[str, Any], message: str
) -> None:
    before = tree(host.base)
    with pytest.raises(StateError) as caught:
        host.present(fragment)
    assert str(caught.value).startswith(message)
    assert tree(host.base / "etc") == {
        path.removeprefix("etc/"): what for path, what in before.items() if path.startswith("etc/")
    }


@pytest.mark.parametrize("content", [["MARKED-SECRET"], {"a": "MARKED-SECRET"}, "MARKED-SECRET\ud800"])
def test_a_refused_secret_is_not_shown(host: FakeHost, content: Any) -> None:
    for path in ("/etc/key", UNIT):
        with pytest.raises(StateError, match=r"secrets\[0\]\.content: must ") as caught:
            host.present({}, secrets=[{"path": path, "content": content}])
        assert "MARKED-SECRET" not in str(caught.value)
    with pytest.raises(StateError, match="begins with a section") as caught:
        host.present({}, secrets=[{"path": UNIT, "content": "MARKED-SECRET"}])
    assert "MARKED-SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "fragment",
    [
        a_ruleset("add table netdev sideband; delete table netdev sideband\ntable netdev sideband { }"),
        a_ruleset('define x = { 1, 2 }\ntable netdev sideband {\n comment "} flush ruleset" # }\n}\n'),
        a_ruleset(
            "table netdev sideband { }\nadd chain netdev sideband x { }\nflush chain netdev sideband x"
        ),
        a_ruleset("table sideband { }", family="ip"),
        a_ruleset("table bridge sideband { }", family="bridge"),
        a_ruleset(""),
        a_ruleset(None),
        {"nftables": None, "network": {}, "files": None, "units": [{"name": "a.service", "running": None}]},
        {"masked": ["a.service"], "units": [{"name": "a.service", "running": False}]},
        {"guard_seconds": "40"},
        a_file(mode="4755", owner="root", group="", check="", content="a\0b"),
        a_file(owner=0),
        a_file(path="/etc/systemd/system/x.slice", content="# plain\n\n[Unit]\n"),
        a_file(path=f"{UNIT}.d/none.conf"),
        {"links": [{"path": "/a/b", "target": "../c"}]},
    ],
)
def test_what_is_odd_but_right_is_taken(host: FakeHost, fragment: dict[str, Any]) -> None:
    host.present(fragment, check=True)


WHOLE: dict[str, Any] = {
    "packages": ["haproxy"],
    "groups": ["sideband"],
    "users": [{"name": "a", "group": "a", "groups": ["b"], "home": "/h", "shell": "/bin/sh"}],
    "directories": [{"path": "/d", "mode": "0755", "owner": "root", "group": "root"}],
    "files": [{"path": "/f", "content": "x", "check": "x %s", "create": False}, a_file()["files"][0]],
    "links": [{"path": "/l", "target": "/t"}],
    "archives": [{"path": "/a", "url": "http://h/x", "sha256": "ab" * 32, "format": "tar"}],
    "nftables": {**TABLE, "family": "netdev"},
    "shapes": [SHAPE],
    "units": [{"name": "u.service", "enabled": True, "running": True, "restart_on": ["/f"], "reload_on": []}],
    "masked": ["m.service"],
    "network": {
        "reload": "networkctl",
        "paths": ["/f"],
        "addresses": [{"device": "edge0", "address": "10.0.0.1/24"}],
        "vlans": [{"port": "swp1", "vlan": 2}],
        "accept_rivals": ["/etc/netplan/a.yaml"],
    },
    "guarded": True,
    "guard_seconds": 40,
    "needs": [{"name": "n", "address": "10.0.0.1", "port": 1, "only_for": "packages"}],
}
ODD: list[Any] = [
    None, True, -1, 10**30, 1.5, float("nan"), "", " ", "\0", "\ud800", "a\nb", "..", "/", "/" + "a" * 5000,
    "{", '"', "'", "٣", [], [[]], [1], [None], {}, {"a": 1}, {5: 5}, b"x",
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, ...]]:
    inside: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [(), *[(key, *rest) for key, each in inside for rest in places(each)]]


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = value.copy()
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


@pytest.mark.parametrize("place", places(WHOLE), ids=lambda place: ".".join(map(str, place)))
def test_whatever_stands_anywhere_is_taken_or_refused_in_words(
    host: FakeHost, place: tuple[Any, ...]
) -> None:
    """No error of Python's: those say nothing to a person, and no place."""
    for odd in ODD:
        generation = {"number": 1, "fragment": replaced(WHOLE, place, odd), "secrets": []}
        try:
            Planner(host, "rack").plan(generation)
        except StateError as problem:
            for line in str(problem).splitlines():
                assert line.startswith((*KEYS, "fragment: ")), (odd, line)


def test_what_an_earlier_release_took_from_another_owner_is_told_as_theirs(host: FakeHost) -> None:
    brought = {"files": [a_file()["files"][0], {"path": "/etc/y", "content": "", "mode": "0640"}]}
    host.present(brought, owner="node")
    book = host.base / "var/lib/sideband/generations/node/record.json"
    book.write_text(book.read_text().replace('"0640"', '"6_4_0"'))
    with pytest.raises(StateError) as caught:
        host.present({}, owner="rack")
    assert str(caught.value) == (
        f"owner node, as applied: files[1].mode: {NO_MODE} (got '6_4_0')\n"
        "  next: bring owner node anew, or remove it"
    )
    host.present(brought, owner="node")
    host.present({}, owner="rack")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("No closing quotation"), "a fault of sideband's own, ValueError in broken"),
        (OSError(28, "No space left on device", "/mnt"), "/mnt: No space left on device"),
    ],
)
def test_a_fault_in_the_checking_process_comes_as_one_line(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, fault: Exception, said: str
) -> None:
    def broken(*_: Any) -> None:
        raise fault

    monkeypatch.setattr(candidate, "_in_private_world", broken)
    with pytest.raises(StateError) as caught:
        host.present(a_file(check="true"))
    assert str(caught.value) == f"candidate files could not be staged for their check: {said}"


def test_all_faults_are_told_at_once(host: FakeHost) -> None:
    with pytest.raises(StateError) as caught:
        host.present({"links": [{"path": "/a"}], "files": [{"path": "b", "content": ""}]}, check=True)
    assert len(str(caught.value).splitlines()) == 2
