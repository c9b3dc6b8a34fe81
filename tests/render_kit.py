"""What roles would bring to a host, rendered in this process: a play costs seconds a contract, this tenths.

The same files are read (defaults, vars, templates) by the same templating engine with the same filters; what
is left out is the play around them, which tests/front has."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader, init_plugin_loader
from ansible.template import Templar, trust_as_template
from sideband import software, systems

ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def _loader() -> DataLoader:
    init_plugin_loader()
    filter_loader.add_directory(str(ROOT / "filter_plugins"))
    loader = DataLoader()
    loader.set_basedir(str(ROOT / "playbooks"))
    return loader


@functools.cache
def _variables(word: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder in ("defaults", "vars"):
        path = ROOT / "roles" / word / folder / "main.yml"
        found.update(_loader().load_from_file(str(path), trusted_as_template=True))
    return found


@functools.cache
def _parts(word: str) -> list[str]:
    """The files that the role's tasks include, as the tasks say it."""
    tasks = _loader().load_from_file(str(ROOT / "roles" / word / "tasks/main.yml"))
    found = [task["ansible.builtin.include_vars"] for task in tasks if "ansible.builtin.include_vars" in task]
    return [str(one["file"]) for one in found]


def fragment(
    word: str,
    model: dict[str, Any],
    host: str,
    identity: dict[str, str],
    directory: Path,
    os_release: tuple[str, str] = ("debian", "13"),
    **more: Any,
) -> dict[str, Any]:
    """{"fragment", "secrets"} that a role hands over for a host, as the role `host` would get them."""
    releases = systems.load(str(ROOT / "roles/host/files/systems"))
    known = software.system(
        releases, dict(zip(("ID", "VERSION_ID"), os_release)), more.pop("install_methods", {})
    )
    variables = {
        **_variables(word),
        "inventory_hostname": host,
        "playbook_dir": str(ROOT / "playbooks"),
        "role_path": str(ROOT / "roles" / word),
        "ansible_search_path": [str(ROOT / "roles" / word)],
        "hostvars": {host: more},
        "sideband_site": model["site"],
        "sideband_model": model,
        "sideband_self": model["hosts"][host],
        "sideband_identities": {word: identity},
        "sideband_rack_secrets_directory": str(directory / "secrets"),
        "sideband_host_system": known,
        **more,
    }
    for expression in _parts(word):
        # What the role reads besides, by what the contract has.
        name = Templar(loader=_loader(), variables=variables).template(trust_as_template(expression))
        path = ROOT / "roles" / word / "vars" / name
        variables.update(_loader().load_from_file(str(path), trusted_as_template=True))
    templar = Templar(loader=_loader(), variables=variables)
    wanted = {"fragment": f"{{{{ __{word}_fragment }}}}", "secrets": f"{{{{ __{word}_secrets }}}}"}
    return {name: templar.template(trust_as_template(text)) for name, text in wanted.items()}
