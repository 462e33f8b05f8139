"""Objects of a cluster that were saved in a file, as `--state` names it."""

from __future__ import annotations

import json
from typing import IO, Any

from gpuctl.cli.failures import Failure


def saved_objects(file: IO[str]) -> list[dict[str, Any]]:
    """The objects of a list that kubectl printed, in any order."""
    try:
        read = json.load(file)
    except (ValueError, RecursionError) as error:
        raise _no_state(file, f"it is not JSON: {error}") from error
    items = read.get("items") if isinstance(read, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) and "kind" in item for item in items):
        raise _no_state(file, "it has no list of objects")
    return items


def _no_state(file: IO[str], why: str) -> Failure:
    hint = "it holds what kubectl get -o json prints: see gpuctl plan --help"
    return Failure("GPU9002", f"--state {file.name}: {why}", hint=hint)
