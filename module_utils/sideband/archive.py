"""archiver's configuration from the contract, and what its playbook is asked for.

Pure: the model and a role's settings in, one JSON-ready record out. services/archiver/config.py reads exactly
this shape, and nothing in it is inherited or left to a default there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Record = dict[str, Any]

# As services/archiver/experiment.py has it: an experiment is called as the code's tag.
EXPERIMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
USAGE = "Usage: -e experiment=ID [-e again=true], where ID is a tag of the code"
_TERA = 1e12
# Dense, bfloat16 (float16 where a GPU has no bfloat16), in 10^12 operations a second, by the name that the
# driver gives: NVIDIA's data sheets, without sparsity.
PEAK_TERAFLOPS: Mapping[str, float] = {
    "Tesla V100-SXM2-16GB": 125,
    "Tesla V100-SXM2-32GB": 125,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA A800-SXM4-80GB": 312,
    "NVIDIA L40S": 362,
    "NVIDIA H20": 148,
    "NVIDIA H100 80GB HBM3": 989,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H100 NVL": 835,
    "NVIDIA H800": 989,
    "NVIDIA H200": 989,
    "NVIDIA GH200 480GB": 989,
    "NVIDIA B200": 2250,
}


def compile_archiver(model: Mapping[str, Any], host: str, settings: Mapping[str, Any]) -> Record:
    """The whole file. `settings` are the role's."""
    gateways = model["hosts"][host]["reaches"].get("export", ())
    # Samples as they came carry no job (the region takes it off): they are in the tiers after the first.
    tiers = list(model["tiers"].values())[1:]
    if not gateways:
        raise ValueError("sideband_flows[export]: the archive reaches no gateway; add the flow")
    if not tiers:
        raise ValueError("sideband_tiers: the archive needs an aggregated tier (got none)")
    return {
        "gateways": [f"https://{end['authority']}" for end in gateways],
        "tls": dict(settings["tls"]),
        "tiers": [
            {key: tier[key] for key in ("name", "resolution_seconds", "retention_seconds")} for tier in tiers
        ],
        "state_directory": settings["state_directory"],
        "remote": {
            key: settings[key] for key in ("bucket", "prefix", "endpoint", "region", "credentials", "ca")
        },
        "repositories": [{"tenant": one["tenant"], "url": one["url"]} for one in settings["repositories"]],
        "git_config": settings["git_config"],
        "settle_seconds": int(settings["settle_seconds"]),
        "memory_bytes": int(settings["memory_bytes"]),
        "cache_bytes": int(settings["cache_bytes"]),
        "peak_flops": {
            name: float(value) * _TERA
            for name, value in {**PEAK_TERAFLOPS, **settings["peak_teraflops"]}.items()
        },
        "price_per_gpu_hour": {name: float(value) for name, value in settings["price_per_gpu_hour"].items()},
        "currency": settings["currency"],
    }


def credentials(secret: str) -> str:
    """`ACCESS:SECRET` in the form of AWS' own tools, which DVC reads. Raises without showing what it got."""
    access, colon, key = secret.strip().partition(":")
    if not (access and colon and key) or re.search(r"\s", access + key):
        raise ValueError("the secret of the storage must be one line, ACCESS_KEY:SECRET_KEY")
    return f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {key}\n"


def request_errors(given: Mapping[str, Any], hosts: Sequence[str]) -> list[str]:
    """What is wrong with the extra variables of playbooks/archive.yml."""
    found = []
    name = given.get("experiment")
    if name is None or str(name) == "":
        found.append("experiment: is missing; hint: the code's tag, -e experiment=ID")
    elif not EXPERIMENT.fullmatch(str(name)):
        found.append(
            f"experiment: no name of a tag (got {str(name)[:80]!r}); "
            "hint: letters, digits, '.', '_' and '-', at most 64"
        )
    if str(given.get("again", "")).lower() not in ("", "true", "false"):
        found.append(f"again: must be true or false (got {given['again']!r}); hint: leave it out")
    if not hosts:
        found.append("groups.sideband_archive: has no host; hint: put one into it and run site.yml")
    return found
