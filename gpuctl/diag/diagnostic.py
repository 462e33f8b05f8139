"""Diagnostics as data: a code, a place, a message and a fix. Only `diag.text` turns them into text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.diag.span import SourceSpan


class Severity(StrEnum):
    """An error makes the input unusable; a warning does not. An audit is only counted and listed."""

    ERROR = "error"
    WARNING = "warning"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One mistake. `source_line`: the text of `span.line`, for the caret; `help`: the nearest fix.

    `related`: other places that explain the mistake ("first declared here"). `policy`: the name of the broken policy,
    if there is one: unlike the message, it stays the same when a value changes.
    """

    code: str
    message: str
    span: SourceSpan
    severity: Severity = Severity.ERROR
    help: str = ""
    source_line: str = ""
    related: tuple[tuple[str, SourceSpan], ...] = ()
    policy: str = ""

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Sort by place, then code: the reading order of a file."""
        return (self.span.file, self.span.line, self.span.column, self.code, self.message)


def sorted_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """All diagnostics once, in reading order."""
    return tuple(sorted(set(diagnostics), key=lambda d: d.sort_key))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """True when at least one diagnostic is an error."""
    return any(d.severity is Severity.ERROR for d in diagnostics)


def most_severe_first(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Errors, then warnings, then audits; each in the order they came in."""
    order = list(Severity)
    return sorted(diagnostics, key=lambda found: order.index(found.severity))
