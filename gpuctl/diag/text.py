"""Format diagnostics: text with a caret, and JSON."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.escapes import json_text, printable, without_command
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import explain_code, reason_text

__all__ = ["explain_code", "json_form", "reason_text", "text_form"]

TAB_WIDTH = 4
SHOWN_WIDTH = 120


def text_form(diagnostics: Sequence[Diagnostic]) -> str:
    """Each diagnostic as `file:line:column: severity CODE: message`, the line with a caret under the place, and
    help."""
    return "\n".join(_text(diagnostic) for diagnostic in diagnostics)


def json_form(diagnostics: Sequence[Diagnostic]) -> str:
    """`{"diagnostics": [{code, severity, message, file, line, column, endColumn, help, related}]}`, ended by a line
    break. Columns are in characters."""
    return json_text({"diagnostics": [_fields(d) for d in diagnostics]}, indent=2) + "\n"


def _text(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    severity = diagnostic.severity.value
    lines = [f"{printable(str(span))}: {severity} {diagnostic.code}: {printable(diagnostic.message)}"]
    if diagnostic.source_line.strip():
        lines.extend(_caret(diagnostic.source_line, span))
    lines.extend(f"  note: {printable(text)} ({printable(str(where))})" for text, where in diagnostic.related)
    lines.append(f"help: {printable(diagnostic.help)}   more: gpuctl explain {diagnostic.code}")
    return "\n".join(map(without_command, lines)) + "\n"


def _caret(line: str, span: SourceSpan) -> list[str]:
    """The line and, below it, carets under the range; a long line is cut to what surrounds the range."""
    start = max(0, min(span.column - 1, len(line)))
    end = max(start + 1, min(span.end_column - 1, len(line)))
    first = max(0, start - SHOWN_WIDTH // 2) if len(line) > SHOWN_WIDTH else 0
    last = min(len(line), first + SHOWN_WIDTH)
    end = max(start + 1, min(end, last))
    number = str(span.line)
    before, marked = _shown(line[first:start]), _shown(line[start:end])
    shown = f"{before}{marked}{_shown(line[end:last])}".rstrip()
    pad = " " * len(number)
    return [f"  {number} | {shown}", f"  {pad} | {' ' * _width(before)}{'^' * max(1, _width(marked))}"]


def _shown(text: str) -> str:
    """Tabs as spaces, control characters as escapes."""
    return printable(text.replace("\t", " " * TAB_WIDTH))


def _width(text: str) -> int:
    """The width of a text on a terminal: 2 for wide characters, 0 for combining marks."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fields(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "endColumn": span.end_column,
        "help": diagnostic.help,
        "related": [
            {"message": text, "file": where.file, "line": where.line, "column": where.column}
            for text, where in diagnostic.related
        ],
    }
