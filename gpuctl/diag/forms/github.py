"""Workflow commands of GitHub Actions: annotations at the lines of a pull request.

The runner takes every line that begins with `::` as a command. It decodes `%25`, `%0D` and `%0A` in a command's text,
and also `%3A` and `%2C` in its properties; decoded text is not read as a command again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuctl.diag.diagnostic import Diagnostic, Severity, most_severe_first
from gpuctl.diag.escapes import printable

MOST_ANNOTATIONS = 10
"""The most annotations of each severity that the service shows for one step."""
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.AUDIT: "notice"}


def workflow_commands(diagnostics: Sequence[Diagnostic]) -> str:
    """A command for each diagnostic that is shown, errors first, and one with the number of the others."""
    return "".join(_commands(diagnostics))


def _commands(diagnostics: Sequence[Diagnostic]) -> Iterator[str]:
    counts: Counter[Severity] = Counter()
    for diagnostic in most_severe_first(diagnostics):
        counts[diagnostic.severity] += 1
        # The last notice is for the number of diagnostics that are not shown.
        if counts[diagnostic.severity] <= MOST_ANNOTATIONS - (diagnostic.severity is Severity.AUDIT):
            yield _annotation(diagnostic)
    more = [
        f"{rest} more {severity.value}{'' if rest == 1 else 's'}"
        for severity in Severity
        if (rest := counts[severity] - MOST_ANNOTATIONS + (severity is Severity.AUDIT)) > 0
    ]
    if more:
        yield f"::notice title=gpuctl::{' and '.join(more)} not shown here. All of them: gpuctl validate\n"


def _annotation(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    properties = {
        "file": span.file,
        "line": span.line,
        "col": span.column,
        "endColumn": span.end_column,
        "title": diagnostic.code,
    }
    named = ",".join(f"{name}={_property(printable(str(value)))}" for name, value in properties.items())
    text = "\n".join(part for part in (printable(diagnostic.message), printable(diagnostic.help)) if part)
    return f"::{_COMMANDS[diagnostic.severity]} {named}::{_escaped(text)}\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
