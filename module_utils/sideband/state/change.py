"""One line of a plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    kind: str
    name: str
    action: str
    reason: str = ""
    before: str | None = None
    after: str | None = None

    def line(self) -> str:
        return f"{self.kind} {self.name}: {self.action}" + (f" ({self.reason})" if self.reason else "")

    def diff(self) -> dict[str, str]:
        if self.before is None and self.after is None:
            return {"prepared": self.line() + "\n"}
        return {
            "before_header": f"{self.name} (now)",
            "after_header": f"{self.name} ({self.action})",
            "before": self.before or "",
            "after": self.after or "",
        }
