"""Print values as JSON and YAML, and counts in words. Results go to standard output, everything else to standard
error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuctl.cli.terminal import show
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.escapes import json_text


def print_json(value: Any) -> None:
    """One JSON document, indented, keys in the order given."""
    show(json_text(value, indent=2) + "\n")


def print_yaml(value: Any) -> None:
    """One YAML document."""
    from gpuctl.views.yamltext import yaml_document  # noqa: PLC0415 - the YAML library is imported only now

    show(yaml_document(value))


def counted(count: int, noun: str) -> str:
    """`1 job`, `3 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tally(diagnostics: Iterable[Diagnostic]) -> str:
    """`2 errors, 1 warning`."""
    severities = [diagnostic.severity for diagnostic in diagnostics]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    return ", ".join(
        counted(count, noun) for count, noun in ((errors, "error"), (warnings, "warning")) if count or noun == "error"
    )
