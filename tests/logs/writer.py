"""A program that logs numbered lines, as a shell does it: each line opens the file anew; and renames it
meanwhile."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path


class Numbered(threading.Thread):
    def __init__(
        self, path: Path, lines: int, rotate_seconds: float = 0.0, burst: int = 20, pause: float = 0.02
    ) -> None:
        super().__init__(daemon=True)
        self._path, self._lines, self._rotate, self._burst, self._pause = (
            path,
            lines,
            rotate_seconds,
            burst,
            pause,
        )
        self.rotations = 0

    def run(self) -> None:
        rotated = time.monotonic()
        for number in range(1, self._lines + 1):
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(f"{time.time_ns()} seq={number}\n")
            if number % self._burst == 0:
                time.sleep(self._pause)
            if self._rotate and time.monotonic() - rotated > self._rotate:
                self.rotations += 1
                os.rename(self._path, f"{self._path}.{1000 - self.rotations}")
                rotated = time.monotonic()
