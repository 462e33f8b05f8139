"""JUnit XML, which the test reports of CI services read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.escapes import printable, printable_lines
from gpuctl.diag.text import text_form


def junit(diagnostics: Sequence[Diagnostic]) -> str:
    """One suite, with a failed case for each error and a passed one, with its text, for every other diagnostic.

    Without errors it has the passed case `declarations`, so that no service takes the report for empty.
    """
    errors = [one for one in diagnostics if one.severity is Severity.ERROR]
    cases = [line for diagnostic in diagnostics for line in _case(diagnostic)]
    if not errors:
        cases.append('    <testcase classname="gpuctl" name="declarations"/>')
    counts = f'tests="{len(diagnostics) + (not errors)}" failures="{len(errors)}" errors="0" skipped="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="gpuctl validate" {counts}>',
        f'  <testsuite name="gpuctl validate" {counts}>',
        *cases,
        "  </testsuite>",
        "</testsuites>",
    ]
    return "".join(f"{line}\n" for line in lines)


def _case(diagnostic: Diagnostic) -> Iterator[str]:
    span = diagnostic.span
    code = quoteattr(printable(diagnostic.code))
    name, file = quoteattr(printable(f"{diagnostic.code}: {diagnostic.message}")), quoteattr(printable(span.file))
    yield f'    <testcase classname={file} name={name} file={file} line="{span.line}">'
    text = escape(printable_lines(text_form([diagnostic])).rstrip("\n"))
    if diagnostic.severity is Severity.ERROR:
        yield f"      <failure type={code} message={name}>{text}</failure>"
    else:
        yield f"      <system-out>{text}</system-out>"
    yield "    </testcase>"
