"""Printing: JSON, YAML, diagnostics, and files. Standard output carries the answer, standard error all else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from gpuctl.cli.terminal import colour_wanted, paint
from gpuctl.diag.diagnostic import Diagnostic, Severity


def print_json(value: Any) -> None:
    """One JSON document, indented, keys in the order given."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_yaml(value: Any) -> None:
    """One YAML document."""
    from gpuctl.views.yamltext import yaml_document  # noqa: PLC0415 - the YAML library is imported only now

    click.echo(yaml_document(value), nl=False)


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


def coloured(text: str) -> str:
    """A diagnostic's text with its severity and help marked, where colours are wanted."""
    if not colour_wanted():
        return text
    for word in ("error", "warning"):
        text = text.replace(f": {word} GPU", f": {paint(word, word)} GPU", 1)
    return text.replace("\nhelp:", f"\n{paint('help', 'help')}:")
