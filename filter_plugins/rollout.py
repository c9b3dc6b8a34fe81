"""Filters of role rollout: they hand the pure rules of rings, gate and preflight to plays."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))

if TYPE_CHECKING:
    from sideband import gate

# Every process that Ansible forks for a task reads this file: what is heavy is imported where it is needed.


def plan(model: Any, groups: Any) -> dict[str, Any]:
    """Step -> ring and hosts, in order: `sideband_model | sideband_rollout_plan(groups)`."""
    from sideband import rollout
    from sideband.errors import ContractError

    try:
        return rollout.plan(model, groups)
    except ContractError as error:
        raise AnsibleFilterError(str(error)) from None


def release(model: Any, root: str) -> str:
    """Names what is rolled out: `sideband_model | sideband_release(playbook_dir ~ '/..')`."""
    from sideband import rollout

    return rollout.release(model, root)


def _vitals(result: Any) -> Any:
    """A registered result of host_vitals; one of a host that was lost holds none."""
    return result.get("vitals") if isinstance(result, Mapping) else None


def look(variables: Mapping[str, Any]) -> gate.Look:
    """What a run has learnt of one host."""
    from sideband import gate

    found = {when: variables.get(f"__rollout_{when}") for when in ("before", "after", "soaked")}
    lost = [each for each in found.values() if isinstance(each, Mapping) and not _vitals(each)]
    return gate.Look(
        before=_vitals(found["before"]),
        after=_vitals(found["after"]),
        soaked=_vitals(found["soaked"]),
        applied=bool(variables.get("__rollout_applied", False)),
        error=next((str(each["msg"]) for each in lost if each.get("msg")), ""),
    )


def applied(hosts: Sequence[str], hostvars: Any) -> list[str]:
    """Those that every layer went through on."""
    return [host for host in hosts if look(hostvars[host]).applied]


def known_before(hosts: Sequence[str], hostvars: Any) -> dict[str, Any]:
    found = {host: look(hostvars[host]).before for host in hosts}
    return {host: vitals for host, vitals in found.items() if vitals is not None}


def verdict(
    step: Mapping[str, Any], model: Any, hostvars: Any, before: Any, series: Any, failures: Any
) -> dict[str, Any]:
    """Whether the next step may begin, why not, and which hosts go back. `before` is the book's: what hosts
    were like before an interrupted run too. `series` holds the lake's answers before and now."""
    from sideband import gate, rollout

    findings: list[gate.Finding] = []
    levels = _levels(series.get("now", {}), model, step["hosts"])
    names, names_before = (gate.names_by_node(series.get(when, {})) for when in ("now", "before"))
    for host in step["hosts"]:
        seen = look(hostvars[host])
        seen = gate.Look(before.get(host, seen.before), seen.after, seen.soaked, seen.applied, seen.error)
        demand = rollout.demand(model, host, levels[host])
        against = gate.judge_host(host, seen, demand)
        if not against:
            against = gate.judge_series(host, demand, names_before.get(host, ()), names.get(host, ()))
        findings += against
    findings += _probes(model, hostvars) if not findings else []
    budget = model["rollout"]["failure_budget"]
    earlier = [host for host in failures if host not in step["hosts"]]
    judged = gate.verdict(step["ring"], step["hosts"], findings, earlier, budget)
    back = [host for host in (judged.failed if judged.passed else step["hosts"]) if host in before]
    return {
        "passed": judged.passed,
        "cause": judged.cause,
        "failed": judged.failed,
        "findings": [str(finding) for finding in judged.findings],
        "back": back,
    }


def _probes(model: Any, hostvars: Any) -> list[gate.Finding]:
    """What packets around the step have shown. Asked only where nothing else is against it."""
    from sideband import gate

    if not model["rollout"]["probes"]:
        return []
    # Said on every host that sends packets; a switch is none.
    said = (hostvars[host].get("__verify_verdict") for host in model["hosts"] if host in hostvars)
    shown = next((verdict for verdict in said if isinstance(verdict, Mapping) and verdict), None)
    if shown is None:
        return [
            gate.Finding(
                "all", gate.PROBES, "the planes could not be probed", "look at the failed task above"
            )
        ]
    causes = [str(cause) for cause in shown.get("causes", ())]
    if shown.get("passed"):
        return []
    return [gate.Finding("all", gate.PROBES, cause) for cause in causes[:10] or ["a probe is red"]]


def _levels(answers: Any, model: Any, hosts: Sequence[str]) -> dict[str, str]:
    """A node that has not said its level is taken to be at the top."""
    from sideband import gate

    top = model["ladder"]["order"][0]
    said = gate.level_by_node(answers, top)
    return {host: said[host] if said.get(host) in model["ladder"]["levels"] else top for host in hosts}


def _slowest(answers: Any, model: Any, hosts: Sequence[str]) -> int:
    levels = _levels(answers, model, hosts)
    return max(int(model["ladder"]["levels"][level]["period_seconds"]) for level in levels.values())


def level_query(hosts: Sequence[str], model: Any) -> str:
    from sideband import rollout

    window = rollout.PERIODS * int(model["ladder"]["always"]["period_seconds"])
    return f'last_over_time(sideband_policy_level{{node=~"{"|".join(hosts)}"}}[{window}s])'


def names_query(hosts: Sequence[str], model: Any, answers: Any) -> str:
    """Which names of these hosts came within the last periods of the slowest of them."""
    from sideband import rollout

    window = rollout.PERIODS * _slowest(answers, model, hosts)
    return f'count by (__name__, node) (last_over_time({{job="node", node=~"{"|".join(hosts)}"}}[{window}s]))'


def soak(model: Any, hosts: Sequence[str], series: Any) -> int:
    from sideband import rollout

    return rollout.soak_seconds(model, _slowest(series.get("before", {}), model, hosts))


def undo(before: Any, now: Any) -> list[dict[str, str]]:
    from sideband import gate

    return [{"owner": each.owner, "state": each.state} for each in gate.undo(before, now)]


def gathered(hosts: Sequence[str], hostvars: Any) -> dict[str, Any]:
    """Host -> what still differs, of those that are back."""
    found: dict[str, Any] = {}
    for host in hosts:
        found.update(hostvars[host].get("__rollout_back", {}))
    return found


def back_lines(back: Mapping[str, Sequence[str]]) -> list[str]:
    """One sentence for each host that went back."""
    if not back:
        return ["no host had been changed"]
    return [
        f"{host} is not as it was: {', '.join(left)}" if left else f"{host} is back, byte for byte"
        for host, left in back.items()
    ]


def residue(before: Any, now: Any) -> list[str]:
    from sideband import gate

    return gate.residue(before, now)


def removal_order(owners: Any) -> list[str]:
    from sideband import gate

    return gate.in_removal_order(owners)


def connects(part: Any) -> list[str]:
    """Where the contract lets this host connect to."""
    found = []
    for servers in part["reaches"].values():
        for server in servers:
            found += [where for where in (server["authority"], server["authority6"]) if where]
    return sorted(set(found))


def first_look(interpreter: Any) -> str:
    """The shell command that needs nothing on the host but a shell."""
    from sideband import preflight

    text = "" if interpreter is None or str(interpreter).startswith("auto") else str(interpreter)
    return preflight.FIRST_LOOK.format(interpreter=shlex.quote(text) if text else "")


def may_run(result: Any, everybody: bool = True) -> bool:
    """Whether the interpreter that Ansible will take can run our modules; with `everybody` false, also
    whether the host is new to us."""
    from sideband import preflight

    answer = _answer(result)
    if answer is None or (answer["here"] and not everybody):
        return False
    return not preflight.judge_interpreter("", answer["pythons"])


def _answer(result: Any) -> Any:
    from sideband import preflight

    if not isinstance(result, Mapping) or result.get("unreachable") or not result.get("stdout"):
        return None
    return preflight.parse_first_look(str(result["stdout"]))


def world_errors(hosts: Sequence[str], hostvars: Any, model: Any, reach: bool = True) -> list[str]:
    """Every reason why a host of the play cannot take sideband, one line each. Without `reach` a host that
    does not answer is no reason: its ring counts it as failed, and one dead node stops no fleet."""
    from sideband import preflight
    from sideband.load import plain
    from sideband.systems import load as load_systems

    releases = load_systems(str(ROOT / "roles/host/files/systems"))
    errors = []
    for host in hosts:
        variables = hostvars[host]
        answer, facts = _answer(variables.get("__preflight_look")), variables.get("__preflight_facts")
        if not reach and (answer is None or (isinstance(facts, Mapping) and facts.get("unreachable"))):
            continue
        found = preflight.judge_first_look(host, answer, releases)
        if not found:
            found = _software(host, answer, variables, releases, model["hosts"][host]["words"])
        if isinstance(facts, Mapping) and isinstance(facts.get("facts"), Mapping):
            found += preflight.judge_facts(host, plain(facts["facts"], host), model["hosts"][host])
        elif not found and not _known(variables.get("__preflight_look"), facts):
            said = str(facts.get("msg", "")) if isinstance(facts, Mapping) else ""
            found.append(preflight.unread(host, said))
        errors += found
    return [str(error) for error in errors]


def _software(host: str, answer: Any, variables: Any, releases: Any, roles: Sequence[str]) -> list[Any]:
    from sideband import preflight, software
    from sideband.errors import Error

    manifest = str(variables.get("sideband_mirror_manifest") or "")
    try:
        methods = dict(variables.get("sideband_host_install_methods") or {})
        system = software.system(releases, answer["os_release"], methods)
        holds = software.read_manifest(manifest) if manifest else {}
    except software.SoftwareError as error:
        return [Error(host, "system", str(error))]
    return preflight.judge_software(host, system, roles, holds)


def _known(look: Any, facts: Any) -> bool:
    """The further look was left out because sideband is there already."""
    answer = _answer(look)
    return answer is not None and answer["here"] and isinstance(facts, Mapping) and bool(facts.get("skipped"))


def devices(part: Any) -> list[str]:
    """Interfaces that sideband is to own on this host."""
    return [str(each["device"]) for each in part["interfaces"].values() if each["managed"]]


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_rollout_plan": plan,
            "sideband_release": release,
            "sideband_applied": applied,
            "sideband_known_before": known_before,
            "sideband_verdict": verdict,
            "sideband_level_query": level_query,
            "sideband_names_query": names_query,
            "sideband_soak": soak,
            "sideband_undo": undo,
            "sideband_gathered": gathered,
            "sideband_back_lines": back_lines,
            "sideband_residue": residue,
            "sideband_removal_order": removal_order,
            "sideband_connects": connects,
            "sideband_first_look": first_look,
            "sideband_may_run": may_run,
            "sideband_world_errors": world_errors,
            "sideband_devices": devices,
        }
