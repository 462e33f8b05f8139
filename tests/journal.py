"""The journal of `gpuctl reconcile --log-format json`, read while the process writes on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def journal(log: Path) -> list[dict[str, Any]]:
    """Its whole lines so far. What is no JSON, such as a traceback or a warning of a library, fails the test."""
    whole, _, _ = log.read_bytes().rpartition(b"\n")  # the last line may still be written
    return [json.loads(line) for line in whole.decode().splitlines()]
