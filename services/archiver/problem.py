"""What ends a run with a reason and a hint, and no traceback."""

from __future__ import annotations


class Problem(Exception):
    """`experiment: what is wrong; hint: what to do`. `retry` says that the same command may pass later."""

    def __init__(self, text: str, hint: str = "", retry: bool = False) -> None:
        super().__init__(f"{text}; hint: {hint}" if hint else text)
        self.text = text
        self.retry = retry
