"""SARIF 2.1.0 (OASIS), which code scanning services read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity, most_severe_first
from gpuctl.diag.escapes import json_text, printable
from gpuctl.diag.fingerprint import fingerprints
from gpuctl.diag.span import SourceSpan

MOST_RESULTS = 5000
"""The most results in a report: GitHub accepts more, but shows only so many."""
FINGERPRINT = "gpuctlDiagnostic/v1"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.AUDIT: "note"}


def sarif(diagnostics: Sequence[Diagnostic], version: str) -> str:
    """One run of gpuctl of this version. Beyond MOST_RESULTS the least severe results are left out, and a notification
    says how many. Columns are in characters; paths are relative to the working directory, as the caller gave them."""
    kept = most_severe_first(diagnostics)[:MOST_RESULTS]
    left_out = len(diagnostics) - len(kept)
    codes = sorted({diagnostic.code for diagnostic in kept})
    rule_of = {code: position for position, code in enumerate(codes)}
    marks = dict(fingerprints(diagnostics))
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "gpuctl", "version": version, "rules": [_rule(code) for code in codes]}},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The working directory of gpuctl."}}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": list(_notifications(left_out))}],
        "results": [_result(one, rule_of[one.code], marks[one]) for one in kept],
    }
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _notifications(left_out: int) -> Iterable[dict[str, Any]]:
    if left_out:
        text = f"{left_out} more are not in this file, which has the first {MOST_RESULTS}, errors first."
        yield {"level": "warning", "message": {"text": text}}


def _rule(code: str) -> dict[str, Any]:
    entry = CODES.get(code)
    if entry is None:
        return {"id": code}
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.why},
        "help": {"text": f"{entry.fix}\n\nMore: gpuctl explain {code}"},
    }


def _result(diagnostic: Diagnostic, rule: int, mark: str) -> dict[str, Any]:
    text = "\n".join(printable(part) for part in (diagnostic.message, diagnostic.help) if part)
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": _plain(text)},
        "locations": [_location(diagnostic.span)],
        "partialFingerprints": {FINGERPRINT: mark},
    }
    if diagnostic.related:
        result["relatedLocations"] = [
            {"id": number, **_location(where), "message": {"text": _plain(printable(said))}}
            for number, (said, where) in enumerate(diagnostic.related, start=1)
        ]
    return result


def _plain(text: str) -> str:
    """A message's text without links: SARIF reads `[text](target)` as one."""
    return text.replace("](", "] (")


def _location(span: SourceSpan) -> dict[str, Any]:
    region = {"startLine": span.line, "startColumn": span.column, "endColumn": max(span.column, span.end_column)}
    return {"physicalLocation": {"artifactLocation": _artifact(span.file), "region": region}}


def _artifact(path: str) -> dict[str, str]:
    escaped = quote(path.removeprefix("./").encode("utf-8", "surrogateescape"))
    if path.startswith("/"):
        return {"uri": f"file://{escaped}"}
    return {"uri": escaped, "uriBaseId": "SRCROOT"}
