"""Every module's documentation, argument spec and returns say the same, and its examples are valid."""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import ansible.module_utils
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in (ROOT / "library").glob("*.py"))
KEYS = ("type", "elements", "required", "default", "choices")


def load(name: str) -> types.ModuleType:
    """Modules import `ansible.module_utils.sideband`; here that is our own directory."""
    if str(ROOT / "module_utils") not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(ROOT / "module_utils"))
    spec = importlib.util.spec_from_file_location(f"library_{name}", ROOT / "library" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Given(Exception):  # no error: it carries the spec out of main()
    pass


def spec_of(module: types.ModuleType) -> dict[str, Any]:
    """What the module really hands to AnsibleModule."""

    def take(*_: Any, argument_spec: dict[str, Any], **__: Any) -> None:
        raise Given(argument_spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.AnsibleModule, "__init__", take)  # of its subclasses too
        with pytest.raises(Given) as caught:
            module.main()
    spec: dict[str, Any] = caught.value.args[0]
    return spec


def facts(option: dict[str, Any]) -> dict[str, Any]:
    found = {key: option[key] for key in KEYS if key in option and option[key] not in (None, False)}
    return {"type": "str", **found}


def compare(place: str, documented: dict[str, Any], spec: dict[str, Any]) -> None:
    assert set(documented) == set(spec), f"{place}: documentation and argument spec name different options"
    for name, option in spec.items():
        assert facts(documented[name]) == facts(option), f"{place}.{name}"
        assert documented[name].get("description"), f"{place}.{name} has no description"
        if "options" in option or "suboptions" in documented[name]:
            compare(f"{place}.{name}", documented[name].get("suboptions", {}), option.get("options", {}))


@pytest.mark.parametrize("name", MODULES)
def test_documentation_equals_the_argument_spec(name: str) -> None:
    module = load(name)
    documentation = yaml.safe_load(module.DOCUMENTATION)
    assert documentation["module"] == name
    assert documentation["short_description"]
    compare(name, documentation.get("options", {}), spec_of(module))


@pytest.mark.parametrize("name", MODULES)
def test_examples_name_the_module_and_only_its_options(name: str) -> None:
    module = load(name)
    spec = spec_of(module)
    tasks = yaml.safe_load(module.EXAMPLES)
    assert tasks
    used = [task for task in tasks if name in task]
    assert used, "no example uses the module"
    for task in used:
        assert task.get("name")
        assert set(task[name] or {}) <= set(spec), task["name"]
        missing = {key for key, option in spec.items() if option.get("required")} - set(task[name] or {})
        assert not missing, f"{task['name']} lacks {missing}"


@pytest.mark.parametrize("name", MODULES)
def test_what_is_returned_is_described(name: str) -> None:
    module = load(name)
    for key, entry in yaml.safe_load(module.RETURN).items():
        assert entry["description"], key
        assert entry["returned"], key
        assert entry["type"], key


@pytest.mark.parametrize("name", MODULES)
def test_a_module_stays_thin(name: str) -> None:
    text = (ROOT / "library" / f"{name}.py").read_text()
    assert len(text.splitlines()) < 200
    assert ast.get_docstring(ast.parse(text)) is None or "DOCUMENTATION" in text


def test_host_state_returns_exactly_what_it_documents() -> None:
    from sideband.state.fragment import Fragment
    from sideband.state.planner import Plan
    from sideband.state.run import _answer
    from sideband.state.system import System

    class Record:
        current: dict[str, int] = {"number": 1}  # noqa: RUF012  # a stand-in
        armed = None

    class Engine:
        record = Record()
        system = System()

    answered = set(_answer(Engine(), Plan(Fragment()), False))  # type: ignore[arg-type]
    documented = set(yaml.safe_load(load("host_state").RETURN))
    # `changed` and `diff` are Ansible's own.
    assert answered - {"changed", "diff"} == documented


def test_the_example_fragment_of_host_state_is_valid() -> None:
    from sideband.state.fragment import KEYS as KNOWN
    from sideband.state.fragment import parse

    module = load("host_state")
    for task in yaml.safe_load(module.EXAMPLES):
        given = task["host_state"]
        parse(given.get("fragment", {}), given.get("secrets", []))
    for key in KNOWN:
        assert f"C({key})" in module.DOCUMENTATION, key
