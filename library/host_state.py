#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: host_state
short_description: Bring one owner's part of a host to what it should be, in one visit
description:
  - Compares what a I(fragment) wants with what the host has, does only what differs, re-reads it, and records
    a generation below C(/var/lib/sideband/generations/). From that record come exact undo and exact removal.
  - What the owner brought before and wants no more is removed. What sideband did not bring is never touched;
    a foreign file that stood at a wanted path comes back when the path is given up.
  - Packages, users and groups are only reported as C(missing) or C(orphaned); role C(host) brings and removes
    them.
  - Supports check mode and diff mode. A secret's content is in no diff and no result.
options:
  owner:
    description: Who brings the fragment, one word; normally the role's name.
    type: str
    required: true
  state:
    description:
      - C(present) applies the fragment. C(reverted) goes back to the generation before, byte for byte.
      - C(absent) removes everything that the owner brought.
      - C(confirmed) stops the dead man's switch; it must come over a connection opened after the change.
    type: str
    choices: [present, absent, reverted, confirmed]
    default: present
  fragment:
    description:
      - What the host should hold. Keys C(packages), C(groups), C(users), C(directories), C(files), C(links),
        C(archives), C(nftables), C(shapes), C(units), C(masked), C(network), C(guarded), C(guard_seconds),
        C(needs). All that is wrong is told at once, each with its place, before anything is written.
      - Paths are absolute, modes are quoted octal text, archives come over HTTP(S) or, with I(local), from a
        C(file:///), a unit's file has its sections, and a ruleset names its own table only.
      - A file's C(check) command runs on the candidate, shown at its real path together with all other wanted
        files, before anything is written; C(%s) stands for the path. C(create) writes a file only where it is
        absent.
      - A unit restarts when a C(restart_on) input (or its own file) differs from that of its last start.
      - C(needs) are ports of other hosts (C(name), C(address), C(port)). Where one does not answer and there
        is something to change, nothing is changed and it is C(missing). With C(only_for), C(packages) or
        C(archives), it counts only where such a thing has to come.
      - With C(guarded), the previous generation returns after C(guard_seconds), 5 to 86400, unless confirmed.
    type: dict
    default: {}
  secrets:
    description: Files whose content is never shown.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The text.
        type: str
        required: true
      mode:
        description: Mode, as quoted octal text.
        type: str
        default: "0600"
      owner:
        description: Owner.
        type: str
        default: root
      group:
        description: Group; the owner's name if not given.
        type: str
  purge:
    description: With O(state=absent), also remove what programs wrote into directories that sideband made
      below its own roots.
    type: bool
    default: false
  local:
    description: The run is on the host itself, so no session's freshness can prove anything; confirm at once.
    type: bool
    default: false
author: [sideband]
"""

EXAMPLES = r"""
- name: Bring a proxy to its configuration
  host_state:
    owner: rack
    fragment:
      packages: [haproxy]
      masked: [haproxy.service]
      directories: [{path: /etc/sideband/rack, mode: "0755"}]
      files:
        - path: /etc/sideband/rack/haproxy.cfg
          content: "defaults\n"
          check: haproxy -c -f %s
        - path: /etc/systemd/system/sideband-rack.service
          content: "[Service]\nExecStart=/usr/sbin/haproxy -Ws -f /etc/sideband/rack/haproxy.cfg\n"
      units:
        - {name: sideband-rack.service, running: true, reload_on: [/etc/sideband/rack/haproxy.cfg]}
    secrets: [{path: /etc/sideband/rack/host.key, content: "{{ sideband_identities.rack.key }}"}]

- name: Go back to the generation before
  host_state:
    owner: rack
    state: reverted

- name: Remove all that the rack role brought
  host_state:
    owner: rack
    state: absent
"""

RETURN = r"""
plan:
  description: One line for each difference, and notes.
  returned: always
  type: list
  elements: str
missing:
  description: Packages, users, groups and services that have to be there before the fragment can be applied.
  returned: always
  type: dict
package_manager:
  description: Whose packages the host has, C(apt) or C(dnf).
  returned: always
  type: str
orphaned:
  description: Packages, users and groups that were brought for this owner and that no owner wants any more.
  returned: always
  type: dict
generation:
  description: Number of the generation in force.
  returned: always
  type: int
armed:
  description: Whether the dead man's switch waits for a confirmation.
  returned: always
  type: bool
news:
  description: What the dead man's switch did since the last run, or empty.
  returned: always
  type: str
left:
  description: After C(absent), paths that stay because others put something there.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sideband.state import guard, run
from ansible.module_utils.sideband.state.system import StateError, System

SECRET = {
    "path": {"type": "path", "required": True},
    # Only the content: a censored path or owner would make every message unreadable.
    "content": {"type": "str", "required": True, "no_log": True},
    "mode": {"type": "str", "default": "0600"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str"},
}
SPEC = {
    "owner": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent", "reverted", "confirmed"], "default": "present"},
    "fragment": {"type": "dict", "default": {}},
    "secrets": {"type": "list", "elements": "dict", "default": [], "options": SECRET, "no_log": False},
    "purge": {"type": "bool", "default": False},
    "local": {"type": "bool", "default": False},
}


class QuietModule(AnsibleModule):
    def _log_invocation(self) -> None:
        """Nothing into the host's log. Ansible writes a list of options there as one text, with line ends
        spelled out, and then does not find a secret of several lines in it to hide it."""


def main() -> None:
    module = QuietModule(argument_spec=SPEC, supports_check_mode=True)
    given = module.params
    session = "" if given["local"] else guard.ssh_connection()
    try:
        answer = run.perform(
            System(local=given["local"]),
            given["state"],
            given["owner"],
            given["fragment"],
            given["secrets"],
            purge=given["purge"],
            session=session,
            check_mode=module.check_mode,
        )
    except StateError as problem:
        module.fail_json(msg=str(problem))
    if answer["news"]:
        module.warn(f"owner {given['owner']}: {answer['news']}")
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
