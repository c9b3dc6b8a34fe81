"""What YAML and Ansible lose in silence, and files that cannot be read: said with their names and lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_kit import LAB
from sideband import sources


def site(directory: Path, **files: str | bytes) -> Path:
    """An inventory: `all__tiers_yml` is group_vars/all/tiers.yml, `host__a_yml` host_vars/a.yml."""
    for name, content in files.items():
        kind, _, rest = name.rpartition("__")
        folder = {"all": "group_vars/all", "group": "group_vars", "host": "host_vars", "": "."}[kind]
        path = directory / folder / rest.replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return directory


def twice(directory: Path) -> list[str]:
    return [str(error) for error in sources.twice([directory])]


def unreadable(directory: Path) -> list[str]:
    return [str(error) for error in sources.unreadable([directory])]


def test_the_labs_files_are_whole() -> None:
    assert twice(LAB) == []
    assert unreadable(LAB) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"all__planes_yml": "sideband_planes:\n  core: {vlan: 1}\n  edge: {}\n  core: {vlan: 2}\n"},
            "all: sideband_planes.core: stands twice in group_vars/all/planes.yml, lines 2 and 4;",
        ),
        (
            {"all__a_json": '{"a": [{"b": 1, "b": 2}]}'},
            "all: a[0].b: stands twice in group_vars/all/a.json, line 1;",
        ),
        (
            {"hosts_yml": "all:\n  hosts:\n  hosts:\n"},
            "all: all.hosts: stands twice in hosts.yml, lines 2 and 3;",
        ),
        ({"host__n1_yml": "a: 1\na: 1\n"}, "n1: a: stands twice in host_vars/n1.yml, lines 1 and 2;"),
        (
            {"all__a_yml": "sideband_site: one\n", "all__site_yml": "sideband_site: two\n"},
            "all: sideband_site: stands in two files, group_vars/all/a.yml and group_vars/all/site.yml;",
        ),
        (
            {"group__all_yml": "sideband_site: one\n", "all__site_yml": "sideband_site: two\n"},
            "all: group_vars/all.yml: is not read; group_vars/all is read in its place; ",
        ),
        (
            {"host__n1_yml": "ansible_host: a\n", "host__n1_yaml": "ansible_host: b\n"},
            "n1: host_vars/n1.yaml: is not read; host_vars/n1.yml is read in its place; ",
        ),
        (
            {"hosts_yml": "all: {vars: {sideband_site: one}}\n", "all__site_yml": "sideband_site: two\n"},
            "all: sideband_site: stands in two files, hosts.yml and group_vars/all/site.yml; ",
        ),
        (
            {
                "hosts_yml": "all: {children: {g: {hosts: {n1: {sideband_rack: a}}}}}\n",
                "host__n1_yml": "sideband_rack: b\n",
            },
            "n1: sideband_rack: stands in two files, hosts.yml and host_vars/n1.yml; ",
        ),
        (
            {"all__a_yml": "sideband_model: {}\n"},
            "all: sideband_model: is set by plays while they run (got group_vars/all/a.yml); remove it",
        ),
        (
            {"hosts_yml": "all: {hosts: {n1: {sideband_self: x}}}\n"},
            "n1: sideband_self: is set by plays while they run (got hosts.yml); remove it",
        ),
        (
            {"all__a_yml": "confirm_retention: shrink\n"},
            "all: confirm_retention: would confirm for ever (got group_vars/all/a.yml); remove it, and say",
        ),
    ],
)  # fmt: skip
def test_what_the_last_one_would_win_in_silence(tmp_path: Path, files: dict[str, str], said: str) -> None:
    (error,) = twice(site(tmp_path, **files))
    assert error.startswith(said)


def test_one_name_of_two_hosts_or_groups_is_no_fault(tmp_path: Path) -> None:
    directory = site(
        tmp_path,
        all__a_yml="sideband_x: 1\n", group__sideband_node_yml="sideband_x: 2\n",
        host__a_yml="sideband_rack: r\n", host__b_yml="sideband_rack: r\n", all__b_yml="own: 1\n",
        all__c_yml="own: 2\n", host__c_yml="a: &a [*a]\nb: {<<: {c: 1}, c: 2}\n",
        all__v_yml="$ANSIBLE_VAULT;1.1\n",
    )  # fmt: skip
    assert twice(directory) == []
    assert unreadable(directory) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a:\n\t- b\n", "all: group_vars/all/x.yml:2:1: is no YAML: "),
        (b"a: {b\n", "all: group_vars/all/x.yml:2:1: is no YAML: "),
        (b"a: caf\xe9\n", "all: group_vars/all/x.yml: is no UTF-8 at byte 6; save it as UTF-8"),
        ("a: 1\n".encode("utf-16"), "all: group_vars/all/x.yml: is no UTF-8 at byte 0; save it as UTF-8"),
        (b"a: \x00\n", "all: group_vars/all/x.yml: cannot be read: "),
        (b"a: 1\n---\na: 2\n", "all: group_vars/all/x.yml:2:1: is no YAML: "),
        (b"- a\n", "all: group_vars/all/x.yml: holds a list, not variables; "),
        (b"a\n", "all: group_vars/all/x.yml: holds a text, not variables; "),
    ],
)
def test_a_file_that_stops_ansible_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (error,) = unreadable(site(tmp_path, all__x_yml=content))
    assert error.startswith(said)
    assert twice(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"---\n", b"# nothing\n", b"\xef\xbb\xbfa: 1\n"])
def test_an_empty_file_is_none_of_them(tmp_path: Path, content: bytes) -> None:
    assert unreadable(site(tmp_path, all__x_yml=content)) == []


def test_a_file_of_nobody_is_named(tmp_path: Path) -> None:
    directory = site(tmp_path, host__nod1_yml="a: 1\n", host__node2_yml="a: 1\n", all__a_yml="b: 1\n")
    (directory / "group_vars/sideband_nodes.yml").write_text("a: 1\n", encoding="utf-8")
    said = [str(error) for error in sources.strays([directory], ["node1", "node2"], ["sideband_node"])]
    assert said == [
        "sideband_nodes: group_vars/sideband_nodes: is of no group of the inventory;"
        " did you mean 'sideband_node'?",
        "nod1: host_vars/nod1: is of no host of the inventory; did you mean 'node1'?",
    ]


def test_a_file_that_a_host_or_group_left_behind_is_no_fault(tmp_path: Path) -> None:
    directory = site(tmp_path, host__node1_yml="a: 1\n", host__node9_yml="a: 1\n")
    (directory / "group_vars").mkdir()
    for name in ("sideband_logs", "rackrow7"):
        (directory / "group_vars" / f"{name}.yml").write_text("a: 1\n", encoding="utf-8")
    assert sources.strays([directory], ["node1"], ["sideband_lake", "rackrow"]) != []
    (directory / "group_vars" / "rackrow.yml").write_text("a: 1\n", encoding="utf-8")
    assert sources.strays([directory], ["node1"], ["sideband_lake", "rackrow"]) == []


@pytest.mark.parametrize("tag", ["!foo", "!!python/object/apply:os.system"])
def test_a_tag_that_nobody_knows_is_named(tmp_path: Path, tag: str) -> None:
    (error,) = unreadable(site(tmp_path, all__x_yml=f"a:\n  - b: {tag} [c]\n"))
    assert error.startswith("all: group_vars/all/x.yml:2: has a tag that nobody knows, ")
    assert unreadable(site(tmp_path, all__x_yml="a: !unsafe b\nc: !vault d\n")) == []


def test_variables_beside_the_playbooks_are_named(tmp_path: Path) -> None:
    books = site(tmp_path / "playbooks", group__all_yml="sideband_site: other\n", site_yml="- hosts: all\n")
    (error,) = map(str, sources.beside([books], [tmp_path / "inventory"]))
    assert error.startswith("all: group_vars/all.yml: stands beside the playbooks; it wins over every site")
    assert sources.beside([books], [books]) == []


def test_an_inventory_of_a_plugin_sets_no_group(tmp_path: Path) -> None:
    plugin = "plugin: x\ngroups: {vars: {sideband_site: a}}\n"
    assert twice(site(tmp_path, roles_yml=plugin, group__groups_yml="sideband_site: b\n")) == []
