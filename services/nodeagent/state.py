"""What this node obeys: on disk, so that a restart neither raises the level nor forgets a generation."""

from __future__ import annotations

import os
from collections.abc import Callable

from sideband import documents
from sideband.documents import Refused, Signed, Verifier

from services import durable
from services.nodeagent.config import Config

_FILE_BYTES = documents.DOCUMENT_BYTES * 2 + documents.SIGNATURE_BYTES * 2
_SCRAPE_BYTES = 1 << 20


class State:
    """The document in force, the floor below which none is obeyed, and the level that follows."""

    def __init__(self, config: Config, verifier: Verifier, say: Callable[[str], None]) -> None:
        self._config = config
        self._verifier = verifier
        self._say = say
        self._obeyed_path = os.path.join(config.state_directory, "obeyed.json")
        self._previous_path = os.path.join(config.state_directory, "obeyed.previous.json")
        self._floor_path = os.path.join(config.state_directory, "generation")
        self.obeyed: Signed | None = None
        self.floor = 0
        self.level = config.default_level
        self._load()

    @property
    def generation(self) -> int:
        return self.obeyed.document.generation if self.obeyed else 0

    # -- reading back -------------------------------------------------------------------------------------

    def _load(self) -> None:
        self.floor = self._read_floor()
        for path in (self._obeyed_path, self._previous_path):
            self.obeyed = self._read(path)
            if self.obeyed is not None:
                self.level = self.obeyed.document.level
                self.floor = max(self.floor, self.obeyed.document.generation)
                return
        # Nothing to obey can be read. If there was something, the level that the sampler runs at is the last
        # good one: damage on a disk must not raise a node in the middle of an incident.
        if self.floor or os.path.exists(self._obeyed_path):
            self.level = self._level_in_use() or self._config.default_level
            where = self._config.state_directory
            self._say(f"state: nothing readable in {where}; staying at level {self.level}")

    def _read(self, path: str) -> Signed | None:
        if not os.path.exists(path):
            return None
        try:
            raw = durable.read(path, _FILE_BYTES)
            if raw is None:
                raise Refused("malformed", "unreadable or too long")
            value = documents.strict_json(raw)
            text, signature = (
                (value.get(key) for key in ("document", "signature")) if isinstance(value, dict) else (0, 0)
            )
            if not isinstance(text, str) or not isinstance(signature, str):
                raise Refused("malformed", "not what was written")
            signed = documents.examine(text, signature, self._config.site, self._verifier)
            if not signed.document.scope.covers(self._config.rack, self._config.node):
                raise Refused("scope", "names others")
            if signed.document.level not in self._config.levels:
                raise Refused("level", f"{signed.document.level} is not installed")
        except Refused as problem:
            self._say(f"state: {path} is damaged or no longer trusted: {problem}")
            return None
        return signed

    def _read_floor(self) -> int:
        raw = durable.read(self._floor_path, 64)
        if raw is None:
            if os.path.exists(self._floor_path):
                self._say(f"state: {self._floor_path} cannot be read")
            return 0
        text = raw.decode("ascii", "replace").strip()
        if not text.isdigit() or int(text) > documents.GENERATION_MAX:
            # A floor that no document can reach would keep the node at its level for good.
            self._say(f"state: {self._floor_path} is damaged")
            return 0
        return int(text)

    def _level_in_use(self) -> str | None:
        current = durable.read(self._config.scrape_path, _SCRAPE_BYTES)
        if current is None:
            return None
        for name in reversed(self._config.order):  # the lowest first: two levels may share their content
            if durable.read(self._config.levels[name].scrape, _SCRAPE_BYTES) == current:
                return name
        return None

    # -- obeying ------------------------------------------------------------------------------------------

    def obey(self, signed: Signed) -> bool:
        """Obey a document that names this node. True if anything changed; else Refused says why not."""
        document = signed.document
        if not document.scope.covers(self._config.rack, self._config.node):
            raise Refused("scope", f"for {document.scope}")
        if document.level not in self._config.levels:
            raise Refused("level", f"{document.level} is not installed here")
        if document.generation < self.floor:
            raise Refused("old", f"generation {document.generation}, {self.floor} has been obeyed")
        if self.obeyed is not None and document == self.obeyed.document:
            return False
        if document.generation == self.generation:
            raise Refused("old", f"a second document of generation {document.generation}")
        self._store(signed)
        self.obeyed, self.floor, self.level = signed, document.generation, document.level
        return True

    def _store(self, signed: Signed) -> None:
        current = durable.read(self._obeyed_path, _FILE_BYTES)
        if current is not None and self.obeyed is not None:
            durable.write(self._previous_path, current)
        durable.write(self._obeyed_path, documents.canonical(signed.as_json()).encode())
        durable.write(self._floor_path, f"{signed.document.generation}\n".encode())

    def apply(self) -> bool:
        """Put the level's scrape file where the sampler reads it. True if it was not there already."""
        wanted = durable.read(self._config.levels[self.level].scrape, _SCRAPE_BYTES)
        if wanted is None:
            raise OSError(f"{self._config.levels[self.level].scrape}: cannot be read")
        if durable.read(self._config.scrape_path, _SCRAPE_BYTES) == wanted:
            return False
        durable.write(self._config.scrape_path, wanted)
        return True
