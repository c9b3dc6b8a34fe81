#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_ledger
short_description: Keep the book of a rollout on the controller
description:
  - One file per site, replaced whole before and after every step of a rollout, so that an interrupted one
    can be resumed and one budget of failures holds for the whole fleet.
  - Runs on the controller. In check mode nothing is written, and every step may be entered.
options:
  path:
    description: The ledger's file.
    type: path
    required: true
  action:
    description:
      - C(look) only reads. C(begin) opens the book for a release; the same one goes on where it stopped.
      - C(enter) asks whether a step is the next one. C(applying) notes, before anything is changed, what its
        hosts are like. C(reverting), C(failed) and C(passed) note how it went on.
    type: str
    choices: [look, begin, enter, applying, reverting, failed, passed]
    required: true
  site:
    description: The site's name, for C(look) and C(begin).
    type: str
    default: ""
  release:
    description: What names the contract and code that are rolled out, for C(look) and C(begin).
    type: str
    default: ""
  steps:
    description: Step to its C(hosts), in order, for C(begin).
    type: dict
    default: {}
  step:
    description: The step that the action is about.
    type: str
    default: ""
  before:
    description: Host to its vitals before the change, for C(applying). Hosts whose state is known from before
      an interruption keep that.
    type: dict
    default: {}
  cause:
    description: Why the step failed.
    type: str
    default: ""
  failed:
    description: Host to the cause of its failure.
    type: dict
    default: {}
author: [sideband]
"""

EXAMPLES = r"""
- name: Open the book
  rollout_ledger:
    path: .sideband/lab/rollout.json
    action: begin
    site: lab
    release: "{{ sideband_model | sideband_release(playbook_dir ~ '/..') }}"
    steps:
      canary: {ring: canary, hosts: [node1]}
  delegate_to: localhost

- name: Ask whether the canary is next
  rollout_ledger:
    path: .sideband/lab/rollout.json
    action: enter
    step: canary
  delegate_to: localhost
"""

RETURN = r"""
run:
  description: Whether the step is to be done now.
  returned: always
  type: bool
resumed:
  description: Whether an interrupted or failed rollout of the same release goes on.
  returned: always
  type: bool
take_back:
  description: Hosts that an interrupted run left where no release wants them, with their vitals from before.
  returned: always
  type: dict
before:
  description: Vitals of the step's hosts from before the rollout, as far as known.
  returned: always
  type: dict
states:
  description: Every step's state.
  returned: always
  type: dict
failures:
  description: Every host that failed in this rollout, with the cause.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sideband import ledger as book

TEXT = {"type": "str", "default": ""}
MAPPING = {"type": "dict", "default": {}}
ACTIONS = ["look", "begin", "enter", "applying", "reverting", "failed", "passed"]
SPEC = {
    "path": {"type": "path", "required": True},
    "action": {"type": "str", "choices": ACTIONS, "required": True},
    "site": TEXT,
    "release": TEXT,
    "steps": MAPPING,
    "step": TEXT,
    "before": MAPPING,
    "cause": TEXT,
    "failed": MAPPING,
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    given = module.params
    try:
        answer, ledger, dirty = book.act(given["action"], given, book.load(given["path"]), module.check_mode)
        if dirty and not module.check_mode:
            book.save(given["path"], ledger)
    except (book.LedgerError, OSError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=dirty, **answer)


if __name__ == "__main__":
    main()
