"""Debian's package sources as this machine has them, with the suite replaced.

No server's name is written anywhere in the project: whatever the machine uses for its own packages (a
mirror, a proxy, a snapshot) serves the lab too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .say import LabError

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_ONE_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)$"
)


@dataclass(frozen=True)
class Source:
    uri: str
    suite: str

    def line(self) -> str:
        return f"deb [signed-by={KEYRING}] {self.uri} {self.suite} main"


def _debian(uri: str, suite: str, components: list[str], signed_by: str, codename: str) -> Source | None:
    """A third party's source has its own keyring, its own suites, or no component `main`."""
    ours = (codename, f"{codename}-updates", f"{codename}-security")
    if suite not in ours or "main" not in components:
        return None
    return Source(uri, suite) if not signed_by or "debian-archive" in signed_by else None


def parse_one_line(text: str, codename: str) -> list[Source]:
    found = []
    for row in text.splitlines():
        match = _ONE_LINE.match(row.split("#")[0].strip())
        if match:
            signed = re.search(r"signed-by=(\S+)", match["options"] or "")
            source = _debian(
                match["uri"],
                match["suite"],
                match["components"].split(),
                signed[1] if signed else "",
                codename,
            )
            found += [source] if source else []
    return found


def parse_deb822(text: str, codename: str) -> list[Source]:
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        rows = [row for row in stanza.splitlines() if row and not row.startswith(("#", " ", "\t"))]
        fields = {
            key.strip().lower(): value.strip() for key, _, value in (row.partition(":") for row in rows)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                components = fields.get("components", "").split()
                source = _debian(uri, suite, components, fields.get("signed-by", ""), codename)
                found += [source] if source else []
    return found


def codename(os_release: Path = Path("/etc/os-release")) -> str:
    match = re.search(r"^VERSION_CODENAME=\"?(\w+)", os_release.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise LabError("this machine does not say which Debian it is", "use Debian 12 or 13")
    return match[1]


def lines(suite: str, etc: Path = Path("/etc/apt"), own: str = "") -> list[str]:
    """apt source lines for `suite`."""
    own = own or codename()
    found: list[Source] = []
    for path in sorted([etc / "sources.list", *etc.glob("sources.list.d/*")]):
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".list":
            found += parse_one_line(text, own)
        elif path.suffix == ".sources":
            found += parse_deb822(text, own)
    if not found:
        raise LabError(
            f"no Debian source for {own} in this machine's apt configuration", "see /etc/apt/sources.list.d"
        )
    return list(dict.fromkeys(Source(x.uri, x.suite.replace(own, suite, 1)).line() for x in found))
