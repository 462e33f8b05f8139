"""What was saved in a file: objects of a cluster (`--state`), and plans (`comment --plan`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.files import named_file
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import message

if TYPE_CHECKING:
    from gpuctl.views.plan_page import ReadPlan

MOST_PLAN_BYTES = 16 << 20
"""The plan of 10,000 objects has some 5 MiB."""


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


def saved_plan(file: Path) -> ReadPlan:
    """A plan in JSON, which any person may have written."""
    from gpuctl.views.plan_page import read_plan  # noqa: PLC0415 - only now

    data = named_file(file, MOST_PLAN_BYTES)
    too_long = f"it has more than {MOST_PLAN_BYTES >> 20} MiB"
    found = too_long if len(data) > MOST_PLAN_BYTES else read_plan(data)
    if isinstance(found, str):
        told = message("GPU6210", {"file": str(file), "why": found})
        raise Failure("GPU6210", told, hint=CODES["GPU6210"].fix, exit_code=EXIT_FAILED)
    return found
