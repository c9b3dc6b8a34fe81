"""The noun `logs`, and what is printed from it: what a node reads, what a relay forwards, what the store
takes."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from .units import duration_seconds, size_bytes

Record = dict[str, Any]
RELAY_PORT, NODE_PORT = 8536, 8535
STORE_LISTEN, KEEPER_OPS = "127.0.0.1:8537", "127.0.0.1:8539"
SOCKET = "/run/sideband/keeper/relp.sock"
_IDENTITY = {"ca": "ca.crt", "certificate": "host.crt", "key": "host.key"}
# What the keeper holds until the store has it for good; the relays hold the rest.
KEEPER_BYTES = 64 << 20


def parse(noun: Mapping[str, Any] | None) -> Record:
    given = noun or {}
    spool = given.get("spool", {})
    export = given.get("export")
    return {
        "retention_seconds": duration_seconds(given.get("retention", "7d")),
        "cap_bytes": size_bytes(given.get("cap", "10GiB")),
        "free_bytes": size_bytes(given.get("free", "1GiB")),
        "rate_bytes": size_bytes(given.get("rate", "2MiB")),
        "spool_bytes": {
            "node": size_bytes(spool.get("node", "256MiB")),
            "rack": size_bytes(spool.get("rack", "1GiB")),
        },
        "paths": [dict(one) for one in given.get("paths", ())],
        "rules": [dict(one) for one in given.get("rules", ())],
        "export": None
        if export is None
        else {"region": "us-east-1", "secret_file": "", **{key: str(one) for key, one in export.items()}},
    }


def reader(model: Mapping[str, Any], node: str) -> Record:
    """logs.json of a node: what is read, and what of it is left out."""
    logs = model["logs"]
    return {
        "node": node,
        "port": NODE_PORT,
        **{key: f"/etc/sideband/node/{file}" for key, file in _IDENTITY.items()},
        "paths": logs["paths"],
        "rules": logs["rules"],
        "bytes_per_second": logs["rate_bytes"],
        "tenants": _dictionary(model["tenants"]),
    }


def _dictionary(tenants: Sequence[Mapping[str, Any]]) -> Record:
    """Whose a line is, where no job tells it."""
    return {
        name: {str(one): tenant["name"] for tenant in tenants for one in tenant.get(name, ())}
        for name in ("uids", "namespaces")
    }


def relay(model: Mapping[str, Any], rack_host: str) -> list[Record]:
    """The nodes that this relay takes records from. HAProxy knows a node by its certificate; to rsyslog it
    says
    who it is by the loopback address that it connects from, one a node: RELP carries no name that could be
    believed, and rsyslog tells no certificate's."""
    served = [
        node
        for rack in sorted(model["racks"])
        if rack_host in model["racks"][rack]["receivers"]
        for node in model["racks"][rack]["nodes"]
    ]
    first = int(ipaddress.IPv4Address("127.8.0.1"))
    return [
        {"node": node, "address": str(ipaddress.IPv4Address(first + number))}
        for number, node in enumerate(sorted(served))
    ]


def lookup(nodes: Sequence[Mapping[str, Any]]) -> Record:
    """rsyslog's lookup table: from that address to the node."""
    return {
        "version": 1,
        "nomatch": "",
        "type": "string",
        "table": [{"index": one["address"], "value": one["node"]} for one in nodes],
    }


def keeper(model: Mapping[str, Any]) -> Record:
    """keeper.json: whom it believes what."""
    racks = model["racks"]
    receivers: dict[str, dict[str, str]] = {}
    for rack, ends in racks.items():
        for receiver in ends["receivers"]:
            receivers.setdefault(receiver, {}).update(dict.fromkeys(ends["nodes"], rack))
    return {
        "listen": SOCKET,
        "ops_listen": KEEPER_OPS,
        "url": f"http://{STORE_LISTEN}",
        "state_directory": "/var/lib/sideband/logs/keeper",
        "site": model["site"],
        "receivers": receivers,
        "tenants": {
            rack: [tenant["name"] for tenant in model["tenants"] if rack in tenant["racks"]] for rack in racks
        },
        "most_bytes": KEEPER_BYTES,
        "retention_seconds": model["logs"]["retention_seconds"],
    }
