"""Text with named styles. The terminal decides how a style looks; the text must be clear without colours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TEAM_STYLES = 6
"""There are styles team0 to team5; further teams reuse them."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a line; `style` is the name of a style, or ""."""

    text: str
    style: str = ""


Line = tuple[Segment, ...]


def plain(line: Iterable[Segment]) -> str:
    """The line without styles."""
    return "".join(segment.text for segment in line)


def team_style(index: int) -> str:
    """The style of the n-th team."""
    return f"team{index % TEAM_STYLES}"
