"""Filters of role archive: the archiver's configuration, its key to the storage, its playbook's request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "module_utils"))


def configuration(model: Any, host: str, settings: Any) -> dict[str, Any]:
    """archiver.json: `sideband_model | sideband_archive_configuration(inventory_hostname, settings)`."""
    from sideband import archive

    try:
        return archive.compile_archiver(model, host, settings)
    except ValueError as error:
        raise AnsibleFilterError(f"{host}: {error}") from None


def credentials(secret: Any) -> str:
    """The storage's key as DVC reads it: `secret | sideband_archive_credentials`."""
    from sideband import archive

    try:
        return archive.credentials(str(secret))
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from None


def request_errors(given: Any, hosts: Any) -> list[str]:
    """What is wrong with extra variables: `{'experiment': …} | sideband_archive_request_errors(hosts)`."""
    from sideband import archive

    return archive.request_errors(dict(given), list(hosts))


def usage(errors: Any) -> str:
    from sideband import archive

    return f"{'; '.join(errors)}. {archive.USAGE}"


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "sideband_archive_configuration": configuration,
            "sideband_archive_credentials": credentials,
            "sideband_archive_request_errors": request_errors,
            "sideband_archive_usage": usage,
        }
