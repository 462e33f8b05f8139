"""Print to the terminal, with everything escaped. Nothing else calls click.echo.

Colour: only on a terminal, never with NO_COLOR. Styles are words; what they look like is decided here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.escapes import printable, printable_lines, without_command
from gpuctl.diag.text import text_form
from gpuctl.views.styled import Segment

STYLES = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "help": {"fg": "cyan"},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "strong": {"bold": True},
    "dim": {"dim": True},
    "team0": {"fg": "bright_blue"},
    "team1": {"fg": "bright_yellow"},
    "team2": {"fg": "bright_green"},
    "team3": {"fg": "bright_magenta"},
    "team4": {"fg": "bright_cyan"},
    "team5": {"fg": "bright_red"},
}
"""Every style that a view may name."""


def colour_wanted() -> bool:
    """Whether standard output is a terminal with colours, and NO_COLOR is not set. A closed standard output is None."""
    if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def say(*parts: str | Segment, err: bool = False) -> None:
    """Print one line of plain and styled parts; line breaks, control characters and commands in them are escaped."""
    shown = (_paint(part.text, part.style) if isinstance(part, Segment) else printable(part) for part in parts)
    click.echo(without_command("".join(shown).rstrip(" ")), err=err)


def show(text: str, *, err: bool = False) -> None:
    """Print lines that a view made, each with its end: tables, charts, YAML, JSON."""
    click.echo(printable_lines(text), nl=False, err=err)


def show_diagnostics(diagnostics: Sequence[Diagnostic], *, err: bool = False) -> None:
    """Print diagnostics with their severity and help marked."""
    text = printable_lines(text_form(diagnostics))
    for word in ("error", "warning"):
        text = text.replace(f": {word} GPU", f": {_paint(word, word)} GPU", 1)
    click.echo(text.replace("\nhelp:", f"\n{_paint('help', 'help')}:"), nl=False, err=err)


def _paint(text: str, style: str) -> str:
    """Text in a style, if colours are wanted."""
    plain = printable(text)
    if not style or not colour_wanted():
        return plain
    return click.style(plain, **STYLES[style])  # type: ignore[arg-type] # keyword values of several types
