#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: plane_probe
short_description: Probe the planes from one host, many packets in one visit
description:
  - One of three visits to a host. C(open) starts a short-lived observer (its own listeners, and a capture on
    each plane's device except training's) and reads counters, hooks, queues and sockets. C(shoot) connects to
    services and sends hand-built frames, each once. C(collect) takes the observer's findings, reads the
    counters again, and asks stores for data where the request says so.
  - Requests are made by the filter C(sideband_verify_request) from the compiled contract; the findings are
    judged on the controller.
  - Changes nothing on the host. What it opens it closes, at the latest when O(run) says so.
options:
  phase:
    description: Which visit.
    type: str
    choices: [open, shoot, collect]
    required: true
  run:
    description:
      - "What all visits of one run share: C(magic), 16 bits that mark its frames; C(seconds), how long its
        observers live; C(rate), how many frames a host sends in a second, 0 for no limit."
    type: dict
    required: true
  request:
    description: What to do here.
    type: dict
    required: true
  through:
    description:
      - A command that runs its arguments on a host which Ansible does not manage, with the standard input
        passed on. The module then runs on the controller. Empty for a managed host.
    type: list
    elements: str
    default: []
  directory:
    description: Where the observer is reached on the probed host.
    type: path
    default: /run/sideband-probe
author: [sideband]
"""

EXAMPLES = r"""
- name: Open the listeners and read the counters
  plane_probe:
    phase: open
    run: {magic: 23130, seconds: 120, rate: 20}
    request: "{{ sideband_model | sideband_verify_request(options, inventory_hostname, 'open', {}) }}"
  register: opened
"""

RETURN = r"""
found:
  description:
    - What this visit found. C(open) gives C(macs), C(answers), C(hooks), C(queues), C(sockets),
      C(counters) and C(versions). C(shoot) gives C(connects), C(sent) and C(unsent). C(collect) gives
      C(counters), C(devices), C(answers) and C(problem).
  returned: always, empty in check mode
  type: dict
plan:
  description: What the visit does, in words.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sideband import probe, probe_outside


def describe(request):
    """The plan: how many of what."""
    return [f"{key}: {len(value)}" for key, value in sorted(request.items()) if isinstance(value, list)]


def main():
    module = AnsibleModule(
        argument_spec={
            "phase": {"type": "str", "required": True, "choices": ["open", "shoot", "collect"]},
            "run": {"type": "dict", "required": True},
            "request": {"type": "dict", "required": True},
            "through": {"type": "list", "elements": "str", "default": []},
            "directory": {"type": "path", "default": probe.DIRECTORY},
        },
        supports_check_mode=True,
    )
    params = module.params
    plan = describe(params["request"])
    if module.check_mode:
        module.exit_json(changed=False, found={}, plan=plan)
    given = (params["phase"], params["run"], params["request"], params["directory"])
    try:
        found = probe_outside.visit(params["through"], *given) if params["through"] else probe.visit(*given)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{params['phase']}: {error}", plan=plan)
    module.exit_json(changed=False, found=found, plan=plan)


if __name__ == "__main__":
    main()
