"""Filters of role alerts: what a host of it runs, and the secrets of those who are told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT / "module_utils") not in sys.path:
    sys.path.insert(0, str(ROOT / "module_utils"))

HOT_PORT = "sideband_lake_hot_port"

# What is heavy is imported where it is used: every task's process loads every filter file.


def compiled(
    model: Any, host: str, settings: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """`sideband_model | sideband_alerts(inventory_hostname, settings, hostvars[inventory_hostname])`.
    `settings`: the role's variables."""
    from sideband import alert_rules, alerts, load, shape

    given = load.plain(settings, "alerts")
    limits = alert_rules.Limits.of(given["thresholds"])
    try:
        groups = alert_rules.load(limits=limits)
    except ValueError as error:
        raise AnsibleFilterError(f"{host}: alerts: {error}") from None
    known = [name for name, _, _ in alert_rules.thresholds(groups)]
    odd = sorted(set(limits.entries) - set(known))
    if odd:
        raise AnsibleFilterError(
            f"{host}: sideband_alerts_thresholds: is no threshold (got {odd[0]!r}); "
            f"hint: known are {', '.join(sorted(known))}"
        )
    return alerts.compile_host(
        load.plain(model, "model"),
        str(host),
        groups,
        alerts.Settings(
            # Role lake's, which has a default that no other role sees.
            hot_port=int(variables.get(HOT_PORT, shape.settings()[HOT_PORT]["default"])),
            link=given["link"],
            limits=limits,
            certificates=given["certificates"],
        ),
    )


def feed(_: Any) -> str:
    """What a region's agent hands to the store beside it."""
    from sideband import alert_rules, alerts

    return alerts.feed(alert_rules.load())


def secrets(wanted: list[dict[str, str]], variables: Mapping[str, Any], host: str) -> list[dict[str, str]]:
    """Each secret with its content, from its file or its (vaulted) variable; never shown in an error."""
    found = []
    for one in wanted:
        where = f"variable {one['variable']}" if one["variable"] else f"file {one['file']}"
        try:
            text = (
                str(variables[one["variable"]]) if one["variable"] else Path(one["file"]).read_text("utf-8")
            )
        except Exception as error:
            # Of any type, and its text may hold the secret.
            raise AnsibleFilterError(
                f"{host}: sideband_notify: {where} cannot be read ({type(error).__name__}); "
                f"hint: it holds one URL, key or password, on the controller"
            ) from None
        if not text.strip() or "\n" in text.strip() or "$ANSIBLE_VAULT" in text:
            raise AnsibleFilterError(
                f"{host}: sideband_notify: {where} is no one line of plain text; "
                f"hint: it holds one URL, key or password, whole"
            )
        found.append({"path": one["path"], "content": text.strip() + "\n"})
    return found


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_alerts": compiled,
            "sideband_alerts_feed": feed,
            "sideband_alerts_secrets": secrets,
        }
