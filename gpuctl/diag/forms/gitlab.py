"""GitLab's code quality report: one object for each diagnostic, which merge requests compare by fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.escapes import json_text, printable
from gpuctl.diag.fingerprint import fingerprints

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.AUDIT: "info"}


def code_quality(diagnostics: Sequence[Diagnostic]) -> str:
    """A JSON list; empty without diagnostics. Paths have no `./` before them, as GitLab requires."""
    return json_text([_fields(diagnostic, mark) for diagnostic, mark in fingerprints(diagnostics)], indent=2) + "\n"


def _fields(diagnostic: Diagnostic, mark: str) -> dict[str, Any]:
    said = printable("; ".join(part for part in (diagnostic.message, diagnostic.help) if part))
    return {
        "description": f"{diagnostic.code}: {said}",
        "check_name": diagnostic.code,
        "fingerprint": mark,
        "severity": _SEVERITIES[diagnostic.severity],
        "location": {
            "path": diagnostic.span.file.removeprefix("./"),
            "lines": {"begin": diagnostic.span.line},
        },
    }
