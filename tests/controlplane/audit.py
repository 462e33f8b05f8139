"""The audit log of a control plane: the requests to its API server, one JSON line for each request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class AuditLog:
    """The audit log. Each line is read only once: it grows to 10 MB, and a test that waits looks again and again."""

    path: Path
    _lines: list[str] = field(default_factory=list)
    _read_bytes: int = 0

    def requests(self, since: int = 0, told: str = "") -> list[Mapping[str, Any]]:
        """The requests so far. `since`: how many to leave out first; `told`: only those whose line has this text."""
        return [json.loads(self._lines[at]) for at in range(since, self.count()) if told in self._lines[at]]

    def count(self) -> int:
        """How many requests there were so far."""
        if self.path.exists():
            with self.path.open("rb") as log:
                log.seek(self._read_bytes)
                whole, newline, _ = log.read().rpartition(b"\n")  # the last line may still be written
            self._lines += whole.decode().split("\n") if newline else ()
            self._read_bytes += len(whole + newline)
        return len(self._lines)
