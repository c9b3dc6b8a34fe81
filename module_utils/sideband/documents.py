"""The degradation document: what it says, whom it names, who signed it.

A document selects one of the levels that every node already holds. It is a JSON text in one canonical form,
signed with `ssh-keygen -Y sign`; its scope lies inside the signature, so nobody on the way can re-address it.
Everything here is shared by the signer, the racks and the nodes: the three can never disagree about what a
document means. Standard library alone, Python 3.9: it runs on hosts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

NAMESPACE = "sideband-policy"
IDENTITY = "sideband-policy"
FOCUS = "focus"  # a short-lived level beside the ladder: no rung of it

# A rack serves the bundle from one HAProxy map value. A map line, a runtime command and an answer each
# have to fit into one buffer of 16 KiB, as base64, with the key and a reserve of 1 KiB.
BUNDLE_BYTES = 11_000
DOCUMENT_BYTES = 6_000
SIGNATURE_BYTES = 2_000
BUNDLE_DOCUMENTS = 32

REASONS = ("malformed", "oversize", "signature", "site", "scope", "level", "old")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_ACTION = re.compile(r"[a-z][a-z0-9_=.-]{0,63}\Z")
GENERATION_MAX = 2**53  # a sample's value is a float: beyond this it would be reported rounded


class Refused(Exception):
    """A document or bundle that is not obeyed, with the reason it is counted under."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def highest(order: Sequence[str]) -> str:
    """The level of a place that no document names."""
    return next(level for level in order if level != FOCUS)


# -- scope ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """Whom a document names: everybody, racks, or nodes."""

    kind: str
    names: tuple[str, ...] = ()

    def covers(self, rack: str | None, node: str | None) -> bool:
        """Is this place meant? A rack without a node stands for the nodes of it that nobody has listed."""
        if self.kind == "all":
            return True
        if self.kind == "racks":
            return rack is not None and rack in self.names
        return node is not None and node in self.names

    def concerns(self, rack: str, nodes: Iterable[str]) -> bool:
        """Has a rack with these nodes anything to do with it?"""
        return self.covers(rack, None) or any(self.covers(rack, node) for node in nodes)

    def as_json(self) -> dict[str, Any]:
        return {"kind": "all"} if self.kind == "all" else {"kind": self.kind, "names": list(self.names)}

    def __str__(self) -> str:
        return "all" if self.kind == "all" else f"{self.kind[:-1]}:{','.join(self.names)}"


def scope_from_text(text: str) -> Scope:
    """`all`, `rack:a,b` or `node:a,b`, as a person types it. Raises ValueError with what is wrong."""
    if text == "all":
        return Scope("all")
    kind, colon, rest = text.partition(":")
    names = tuple(sorted({name.strip() for name in rest.split(",")} - {""}))
    if not colon or kind not in ("rack", "node") or not names:
        raise ValueError(f"scope is all, rack:NAME[,NAME] or node:NAME[,NAME] (got {text!r})")
    for name in names:
        if not _NAME.match(name):
            raise ValueError(f"scope: {name!r} is no name")
    return Scope(f"{kind}s", names)


def _scope_from_json(value: Any) -> Scope:
    if not isinstance(value, dict):
        raise Refused("malformed", "scope is no object")
    kind = value.get("kind")
    if kind == "all":
        if set(value) != {"kind"}:
            raise Refused("malformed", "scope all has no names")
        return Scope("all")
    if kind not in ("racks", "nodes") or set(value) != {"kind", "names"}:
        raise Refused("malformed", "scope has an unknown form")
    names = value["names"]
    if not isinstance(names, list) or not names:
        raise Refused("malformed", "scope names nobody")
    if not all(isinstance(name, str) and _NAME.match(name) for name in names):
        raise Refused("malformed", "scope holds what is no name")
    return Scope(kind, tuple(names))


# -- document ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    site: str
    scope: Scope
    generation: int
    level: str
    issued: str
    actions: tuple[str, ...] = ()
    until: str | None = None

    def text(self) -> str:
        """The canonical form, which is what gets signed."""
        value: dict[str, Any] = {
            "site": self.site,
            "scope": self.scope.as_json(),
            "generation": self.generation,
            "level": self.level,
            "actions": list(self.actions),
            "issued": self.issued,
        }
        if self.until is not None:
            value["until"] = self.until
        return canonical(value)


@dataclass(frozen=True)
class Signed:
    """A document whose signature held, with the signature, so that it can be handed on."""

    document: Document
    signature: str

    def as_json(self) -> dict[str, str]:
        return {"document": self.document.text(), "signature": self.signature}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """Seconds since the epoch of a time in the one form that documents use. Raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Two readers that take different ones of two equal keys would obey two different documents.
        raise Refused("malformed", "a key stands twice")
    return value


def _constant(name: str) -> Any:
    raise Refused("malformed", f"{name} is no JSON")


def strict_json(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise Refused("malformed", f"no JSON: {type(error).__name__}") from None


def _time_or_refused(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise Refused("malformed", f"{key} is no time")
    try:
        seconds_of(value)
    except ValueError:
        raise Refused("malformed", f"{key} is no time") from None
    return value


def parse_document(text: str) -> Document:
    """Read a document strictly. Raises Refused; anything that is not exactly canonical is refused."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > DOCUMENT_BYTES:
        raise Refused("oversize", f"a document of {len(raw)} bytes")
    value = strict_json(raw)
    if not isinstance(value, dict):
        raise Refused("malformed", "a document is an object")
    keys = {"site", "scope", "generation", "level", "actions", "issued"}
    if set(value) - {"until"} != keys:
        odd = sorted(map(str, set(value) - {"until"} ^ keys))
        raise Refused("malformed", f"keys missing or unknown: {', '.join(odd)[:200]}")
    for key in ("site", "level"):
        if not isinstance(value[key], str) or not _NAME.match(value[key]):
            raise Refused("malformed", f"{key} is no name")
    generation = value["generation"]
    if type(generation) is not int or not 0 < generation <= GENERATION_MAX:
        raise Refused("malformed", "generation is no positive whole number")
    actions = value["actions"]
    if not isinstance(actions, list) or not all(isinstance(a, str) and _ACTION.match(a) for a in actions):
        raise Refused("malformed", "actions is no list of names")
    document = Document(
        site=value["site"],
        scope=_scope_from_json(value["scope"]),
        generation=generation,
        level=value["level"],
        issued=_time_or_refused("issued", value["issued"]),
        actions=tuple(actions),
        until=_time_or_refused("until", value["until"]) if "until" in value else None,
    )
    if document.text() != text:
        raise Refused("malformed", "not in canonical form")
    return document


# -- signature --------------------------------------------------------------------------------------------


@dataclass
class Verifier:
    """Checks signatures with ssh-keygen, once per document and state of the list of trusted keys."""

    allowed_signers: str
    program: str = "ssh-keygen"
    _held: set[str] = field(default_factory=set)
    _list: tuple[int, int, int] | None = None

    def holds(self, text: str, signature: str) -> bool:
        try:
            status = os.stat(self.allowed_signers)
        except OSError:
            return False
        signers = (status.st_mtime_ns, status.st_size, status.st_ino)
        if signers != self._list:
            self._held.clear()
            self._list = signers
        digest = hashlib.sha256(f"{len(text)}:{text}{signature}".encode()).hexdigest()
        if digest in self._held:
            return True
        if not self._ask(text, signature):
            return False
        if len(self._held) >= 256:
            self._held.clear()
        self._held.add(digest)
        return True

    def _ask(self, text: str, signature: str) -> bool:
        with tempfile.NamedTemporaryFile("w", prefix="sideband-", suffix=".sig") as file:
            file.write(signature)
            file.flush()
            command = [self.program, "-Y", "verify", "-n", NAMESPACE, "-I", IDENTITY]
            command += ["-f", self.allowed_signers, "-s", file.name]
            try:
                done = subprocess.run(
                    command,
                    input=text.encode(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=10,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                return False
        return done.returncode == 0


def examine(text: str, signature: str, site: str, verifier: Verifier) -> Signed:
    """A document that is well formed, truly signed and of this site; otherwise Refused."""
    document = parse_document(text)
    if not signature.isascii():
        # JSON can carry half of a surrogate pair, which no file and no hash takes.
        raise Refused("malformed", "a signature is ASCII")
    if len(signature) > SIGNATURE_BYTES:
        raise Refused("oversize", f"a signature of {len(signature)} bytes")
    if not verifier.holds(text, signature):
        raise Refused("signature", "no trusted key has signed it for this purpose")
    if document.site != site:
        raise Refused("site", f"for site {document.site}")
    return Signed(document, signature)


# -- bundle -----------------------------------------------------------------------------------------------


def bundle_text(signed: Iterable[Signed]) -> str:
    """What a rack serves. Raises ValueError when it would not fit into a rack's answer."""
    ordered = sorted(signed, key=lambda one: -one.document.generation)
    text = canonical({"documents": [one.as_json() for one in ordered]})
    if len(text) > BUNDLE_BYTES or len(ordered) > BUNDLE_DOCUMENTS:
        raise ValueError(
            f"{len(ordered)} documents are in force, {len(text)} bytes "
            f"(at most {BUNDLE_DOCUMENTS} and {BUNDLE_BYTES}); "
            "issue one with a wider scope, which replaces the narrower ones"
        )
    return text


def bundle_pairs(raw: bytes) -> list[tuple[str, str]]:
    """The documents and signatures of a bundle, plain or in base64, unverified. Raises Refused."""
    limit = BUNDLE_BYTES if raw[:1] == b"{" else (BUNDLE_BYTES + 2) // 3 * 4 + 2
    if len(raw) > limit:
        raise Refused("oversize", f"a bundle of more than {limit} bytes")
    if raw[:1] != b"{":
        try:
            raw = base64.b64decode(raw.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise Refused("malformed", "neither JSON nor base64") from None
    value = strict_json(raw)
    if not isinstance(value, dict) or set(value) != {"documents"} or not isinstance(value["documents"], list):
        raise Refused("malformed", "a bundle holds a list of documents")
    if len(value["documents"]) > BUNDLE_DOCUMENTS:
        raise Refused("oversize", "a bundle of too many documents")
    pairs = []
    for entry in value["documents"]:
        if not isinstance(entry, dict) or set(entry) != {"document", "signature"}:
            raise Refused("malformed", "an entry is a document and its signature")
        if not isinstance(entry["document"], str) or not isinstance(entry["signature"], str):
            raise Refused("malformed", "a document and its signature are texts")
        pairs.append((entry["document"], entry["signature"]))
    return pairs


def newest(signed: Iterable[Signed], rack: str | None, node: str | None) -> Signed | None:
    """The newest document that names this place."""
    named = [one for one in signed if one.document.scope.covers(rack, node)]
    return max(named, key=lambda one: one.document.generation, default=None)


def in_force(signed: Iterable[Signed], racks: Mapping[str, Sequence[str]]) -> list[Signed]:
    """The documents that are the newest for somebody: for the whole, for a rack, or for a node.

    So a document for all ends every older, narrower one, and a newer, narrower one stands beside it.
    """
    documents = list(signed)
    places: list[tuple[str | None, str | None]] = [(None, None)]
    for rack, nodes in racks.items():
        places.append((rack, None))
        places.extend((rack, node) for node in nodes)
    kept = {}
    for rack_or_none, node in places:
        found = newest(documents, rack_or_none, node)
        if found is not None:
            kept[found.document.text()] = found
    return sorted(kept.values(), key=lambda one: one.document.generation)
