"""The place of a declared value in its file. Lines and columns are 1-based, in characters, as in editors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """A range on one line of one file; `end_column` is exclusive. `revision` is the commit it was read from, if any."""

    file: str
    line: int = 1
    column: int = 1
    end_column: int = 1
    revision: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"
