"""Compile: from a site's contract to everything that is printed from it. Pure and deterministic: the same
inventory gives the same model, whichever hosts a play is limited to."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import budget, catalogue, logs, notify, whose
from .fabric import compile_ports
from .load import gather
from .model import CLIENTS, Flow, Host, Interface, Site, parse_site
from .nftables import compile_ruleset
from .price import intake_bytes_per_second, keep_pattern
from .qdisc import compile_shapes, shape_record
from .rollout import parse as parse_rollout
from .units import DSCP, authority

Record = dict[str, Any]


def compile_site(hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]]) -> Record:
    """The model of a whole site from its inventory."""
    inventory = gather(hostvars, groups)
    site = parse_site(inventory.nouns, inventory.hosts)
    contract = {"nouns": inventory.nouns, "hosts": inventory.hosts}
    return build_model(site, contract, inventory.groups)


def build_model(site: Site, contract: Mapping[str, Any], groups: Mapping[str, Iterable[str]]) -> Record:
    text = json.dumps(contract, sort_keys=True, separators=(",", ":"))
    switches = [host.name for host in site.hosts.values() if "fabric" in host.words]
    return {
        "site": site.name,
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "hosts": {host.name: _host(site, host) for host in site.hosts.values()},
        "switches": {name: _switch(site, name) for name in switches},
        "racks": _racks(site),
        "ladder": _ladder(site, contract["nouns"].get("catalogue")),
        "tiers": {
            tier.name: {
                "name": tier.name,
                "engine": tier.engine,
                "resolution_seconds": tier.resolution,
                "retention_seconds": tier.retention,
                "retention": tier.retention_text,
                "cap_bytes": tier.cap,
            }
            for tier in site.tiers
        },
        "tenants": [
            {
                "name": tenant.name,
                "certificate": tenant.certificate,
                "racks": list(tenant.racks),
                "rack_regex": "|".join(re.escape(rack) for rack in tenant.racks),
                "uids": list(tenant.uids),
                "slurm_accounts": list(tenant.slurm_accounts),
                "namespaces": list(tenant.namespaces),
            }
            for tenant in site.tenants
        ],
        "administrators": [dict(one) for one in contract["nouns"].get("administrators") or ()],
        "versions": dict(site.versions),
        "rollout": parse_rollout(contract["nouns"].get("rollout")),
        "budget": _budget(site, contract["nouns"].get("budget"), groups),
        "catalogue": catalogue.parse(contract["nouns"].get("catalogue")),
        "aggregation": _aggregation(site, contract["nouns"].get("catalogue")),
        "fan_out": _fan_out(site, contract["nouns"].get("catalogue")),
        "labels": catalogue.parse_labels(contract["nouns"].get("labels")),
        "logs": logs.parse(contract["nouns"].get("logs")),
        "notify": notify.parse(contract["nouns"].get("notify")),
        "flows": [_flow(flow) for flow in site.flows],
        "sources": {"4": site.sources(4), "6": site.sources(6)},
    }


def _host(site: Site, host: Host) -> Record:
    ruleset = compile_ruleset(site, host)
    return {
        "name": host.name,
        "words": list(host.words),
        "rack": host.rack,
        "address": host.address,
        "interfaces": {name: _interface(site, part) for name, part in host.interfaces.items()},
        "ruleset": ruleset.text,
        "counters": [
            {"name": c.name, "device": c.device, "plane": c.plane, "reason": c.reason}
            for c in ruleset.counters
        ],
        "shapes": [shape_record(shape) for shape in compile_shapes(site, host)],
        "serves": _serves(site, host),
        "reaches": _reaches(site, host),
    }


def _aggregation(site: Site, noun: Mapping[str, Any] | None) -> Record:
    """What a region makes for every tier but the finest, which takes samples as they come."""
    metrics = catalogue.parse(noun)["metrics"]
    return {tier.name: catalogue.aggregation(metrics, tier.name) for tier in site.tiers[1:]}


def _fan_out(site: Site, noun: Mapping[str, Any] | None) -> Record:
    """What a region does to samples before each tier: relabelling for the finest, and for the others what
    goes there as it comes."""
    metrics = catalogue.parse(noun)["metrics"]
    first, *others = site.tiers
    return {
        first.name: whose.finest(metrics),
        **{tier.name: whose.whole(metrics, tier.name) for tier in others},
    }


def _budget(site: Site, noun: Mapping[str, Any] | None, groups: Mapping[str, Iterable[str]]) -> Record:
    parsed = budget.parse(noun)
    nodes = [host.name for host in site.hosts.values() if "node" in host.words]
    return {**parsed, "classes": budget.classes(parsed["nodes"], nodes, groups)}


def _interface(site: Site, interface: Interface) -> Record:
    return {
        "device": interface.device,
        "kind": interface.kind,
        "mode": interface.mode,
        "vlan": interface.vlan,
        "ipv4": interface.ipv4,
        "ipv4_prefix": interface.prefix4,
        "ipv6": interface.ipv6,
        "ipv6_prefix": interface.prefix6,
        "cidr4": f"{interface.ipv4}/{interface.prefix4}" if interface.ipv4 else "",
        "cidr6": f"{interface.ipv6}/{interface.prefix6}" if interface.ipv6 else "",
        "mac": interface.mac,
        "managed": site.planes[interface.plane].guarded,
    }


def _end(host: Host, plane: str) -> Record:
    interface = host.interfaces[plane]
    return {"host": host.name, "address4": interface.ipv4, "address6": interface.ipv6}


def _serves(site: Site, host: Host) -> Record:
    result: Record = {}
    for flow in site.flows:
        if not host.is_in(flow.target) or flow.plane not in host.interfaces:
            continue
        interface = host.interfaces[flow.plane]
        _, peers = site.pairs(flow, host)
        result[flow.name] = {
            "port": flow.port,
            "proto": flow.proto,
            "device": interface.device,
            "plane": flow.plane,
            "address4": interface.ipv4,
            "address6": interface.ipv6,
            "listen4": authority(interface.ipv4, flow.port) if interface.ipv4 else "",
            "listen6": authority(interface.ipv6, flow.port) if interface.ipv6 else "",
            "connections": flow.connections,
            "clients": flow.source == CLIENTS,
            "peers": [_end(peer, flow.plane) for peer in peers],
        }
    return result


def _reaches(site: Site, host: Host) -> Record:
    result: Record = {}
    for flow in site.flows:
        servers, _ = site.pairs(flow, host)
        if not servers:
            continue
        result[flow.name] = [
            {
                **_end(server, flow.plane),
                "port": flow.port,
                "authority": (
                    authority(server.interfaces[flow.plane].ipv4, flow.port)
                    if server.interfaces[flow.plane].ipv4
                    else authority(server.interfaces[flow.plane].ipv6, flow.port)
                ),
                "authority6": (
                    authority(server.interfaces[flow.plane].ipv6, flow.port)
                    if server.interfaces[flow.plane].ipv6
                    else ""
                ),
            }
            for server in servers
        ]
    return result


def _switch(site: Site, name: str) -> Record:
    ports = compile_ports(site, name)
    return {
        "ports": [{"port": p.port, "host": p.host, "plane": p.plane, "vlan": p.vlan} for p in ports],
        "vlans": sorted({port.vlan for port in ports}),
    }


def _racks(site: Site) -> Record:
    racks: Record = {}
    for host in site.hosts.values():
        for word, key in (("node", "nodes"), ("rack", "receivers")):
            if word in host.words and host.rack:
                rack = racks.setdefault(host.rack, {"nodes": [], "receivers": []})
                rack[key].append(host.name)
    return dict(sorted(racks.items()))


def _ladder(site: Site, noun: Mapping[str, Any] | None) -> Record:
    metrics = catalogue.parse(noun)["metrics"]
    return {
        "always": {"period_seconds": site.always_period, "metrics": list(site.always_metrics)},
        "order": [level.name for level in site.levels],
        "levels": {
            level.name: {
                "name": level.name,
                "period_seconds": level.period,
                "poll_seconds": level.poll,
                "metrics": list(level.metrics),
                # What every node sends at it: a node may have no GPU, and no job runs there.
                "everywhere": [name for name in level.metrics if _everywhere(metrics, name)],
                "keep": keep_pattern(level.metrics),
                "intake_bytes_per_second": intake_bytes_per_second(level.metrics, level.period),
            }
            for level in site.levels
        },
    }


def _everywhere(metrics: Sequence[Mapping[str, Any]], name: str) -> bool:
    entry = catalogue.entry_of(metrics, name)
    return entry is None or entry["of"] == whose.NODE


def _flow(flow: Flow) -> Record:
    return {
        "name": flow.name,
        "from": flow.source,
        "to": flow.target,
        "plane": flow.plane,
        "proto": flow.proto,
        "port": flow.port,
        "same_rack": flow.same_rack,
        "dscp": flow.dscp,
        "dscp_value": DSCP[flow.dscp],
        "tos": flow.tos,
        "rate_bits_per_second": flow.rate,
        "connections": flow.connections,
    }
