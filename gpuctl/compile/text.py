"""The text of one file, its lines and the places in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.ids import NO_REVISION, Revision

LONGEST_QUOTED_LINE = 2000
"""The longest line that diagnostics quote."""

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

Params = Mapping[str, str | int]
NO_PARAMS: Params = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class SourceText:
    """A file's text. A byte that is not UTF-8 becomes a lone surrogate."""

    path: str
    text: str
    revision: Revision = NO_REVISION

    def line(self, number: int) -> str:
        """The text of a line (1-based) without its break; empty beyond the last, and for a line too long to quote."""
        starts = _line_starts(self)
        if number > len(starts):
            return ""
        start = starts[number - 1]
        end = starts[number] if number < len(starts) else len(self.text)
        return "" if end - start > LONGEST_QUOTED_LINE else self.text[start:end].rstrip("\r\n\x85\u2028\u2029")

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both 1-based, of a character offset."""
        starts = _line_starts(self)
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def offset(self, line: int) -> int:
        """Where a line (1-based) begins; the text's length beyond the last line."""
        starts = _line_starts(self)
        return starts[line - 1] if line <= len(starts) else len(self.text)

    def span(self, line: int, column: int, end_column: int = 0) -> SourceSpan:
        """A range on one line, at least one character wide so that it can be marked."""
        end = max(end_column, column + 1)
        return SourceSpan(file=self.path, line=line, column=column, end_column=end, revision=self.revision)


@lru_cache(maxsize=4)
def _line_starts(source: SourceText) -> Sequence[int]:
    return [0, *(found.end() for found in _BREAK.finditer(source.text))]


def diagnose(source: SourceText, code: str, span: SourceSpan, params: Params = NO_PARAMS, fix: str = "") -> Diagnostic:
    """An error of the catalogue at a place. The help is `fix`, or the catalogue's if there is none."""
    return Diagnostic(
        code=code,
        message=message(code, params),
        span=span,
        help=fix or CODES[code].fix,
        source_line=source.line(span.line),
    )
