"""Colour: only on a terminal, never with NO_COLOR. Styles are words; what they look like is decided here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

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
"""Every style a view may name."""


def colour_wanted() -> bool:
    """True when standard output is a terminal that shows colours and nobody asked for none."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def paint(text: str, style: str) -> str:
    """Text in a style, where colours are wanted."""
    if not style or not colour_wanted():
        return text
    return click.style(text, **STYLES[style])  # type: ignore[arg-type] # keyword values of several types


def painted(segments: Iterable[Segment]) -> str:
    """A styled line as one string."""
    return "".join(paint(segment.text, segment.style) for segment in segments)
