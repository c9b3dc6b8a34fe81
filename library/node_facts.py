#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: node_facts
short_description: Read what preflight has to know of a host
description:
  - Kernel, interpreter, nft, interfaces, disk, service manager, and who else configures the interfaces that
    sideband is to own. Changes nothing.
options:
  devices:
    description: Interfaces that sideband is to own; other owners of them are listed as C(rivals).
    type: list
    elements: str
    default: []
author: [sideband]
"""

EXAMPLES = r"""
- name: Read what preflight has to know
  node_facts:
    devices: [edge0]
  register: found
"""

RETURN = r"""
facts:
  description: >-
    C(kernel), C(python), C(nft) (empty when absent), C(interfaces), C(disk_free_bytes) below C(/var/lib),
    C(service_manager), C(os_release) and C(rivals).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sideband.facts_of_host import collect
from ansible.module_utils.sideband.state.system import System

SPEC = {"devices": {"type": "list", "elements": "str", "default": []}}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.exit_json(changed=False, facts=collect(System(), module.params["devices"]))


if __name__ == "__main__":
    main()
