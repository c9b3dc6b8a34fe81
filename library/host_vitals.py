#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: host_vitals
short_description: Say what sideband's part of a host is like at this moment
description:
  - Reads in one visit what a rollout has to know of a host before a change, after it, at the end of the soak,
    and what is needed to say later that the host is as it was before, byte for byte.
  - Changes nothing, needs root.
options:
  agent_ports:
    description: Ports on 127.0.0.1 where agents tell what they have dropped.
    type: list
    elements: int
    default: [8529, 8530, 8531]
  connects:
    description: Addresses as C(address:port), IPv6 in brackets, to which a TCP connection is tried.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that one connection may take.
    type: int
    default: 3
author: [sideband]
"""

EXAMPLES = r"""
- name: Look at the host before the change
  host_vitals:
  register: before

- name: Look at it later, and at the way to its receiver
  host_vitals:
    connects: ["10.21.0.21:8427", "[fd00:5b:21::21]:8427"]
  register: after
"""

RETURN = r"""
vitals:
  description: >-
    C(generations) of every owner, C(units), C(listeners) not on loopback, packets of C(counters), drops
    of C(queues) and C(agents), C(cpu_seconds) and C(memory_bytes) of sideband's processes, fingerprints of
    C(files), C(rules) and C(shapes), C(boot), C(at) (seconds since boot) and C(unanswered) connections.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sideband.state.system import StateError, System
from ansible.module_utils.sideband.vitals import collect, unanswered

SPEC = {
    "agent_ports": {"type": "list", "elements": "int", "default": [8529, 8530, 8531]},
    "connects": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "int", "default": 3},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    given = module.params
    try:
        vitals = collect(System(), given["agent_ports"])
    except (OSError, StateError) as problem:
        module.fail_json(msg=f"the host's state cannot be read: {problem}")
    vitals["unanswered"] = unanswered(given["connects"], given["timeout"])
    module.exit_json(changed=False, vitals=vitals)


if __name__ == "__main__":
    main()
