"""Regular expressions of policies. RE2 matches them, in time linear in the text for any expression. Only this module
knows the library.

RE2 has the syntax of Python and ECMA without the parts that need backtracking: look-around and back references.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped] # it has no types

_MAX_BYTES = 1 << 18
"""The memory of one expression: some 10,000 instructions, and its states while it is matched."""
_OPTIONS = re2.Options()
_OPTIONS.max_mem = _MAX_BYTES
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True

_LOOK = 'RE2 has no look-around: write a second pattern in allOf, or what must not match in not: {pattern: "..."}'
_FIXES = (
    ("(?=", _LOOK),
    ("(?!", _LOOK),
    ("(?<=", _LOOK),
    ("(?<!", _LOOK),
    ("(?P", "RE2 names a group (?P<name>...), and has no back references: write the alternatives out"),
    ("(?", "RE2 knows no such group: write (...) or (?:...)"),
    ("\\Z", "write $ or \\z"),
    ("\\u", "write the character itself, or \\x{10FFFF} with its code point"),
    ("repetition size", "repeat at most 1000 times in all"),
    ("bad repetition operator", "RE2 has no possessive repetition: write one of * + ?"),
)
"""Parts of RE2's messages, or of expressions that are valid elsewhere, and how to write them for RE2."""


class NotAPattern(ValueError):
    """An expression that RE2 can't read. `fix`: how to write it for RE2, if it is valid elsewhere."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


class TooLargePattern(NotAPattern):
    """An expression with more instructions than allowed. RE2 takes a while to find that out."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A compiled expression. `size`: its instructions; matching takes at most that many operations a byte of text."""

    size: int
    _compiled: Any

    def is_in(self, text: str) -> bool:
        """Whether a part of the text matches. Cost: linear in the text, at worst times `size`."""
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def pattern_of(text: str) -> Pattern:
    """Compile an expression. Raises NotAPattern."""
    try:
        compiled = re2.compile(text.encode("utf-8", "replace"), _OPTIONS)
    except re2.error as error:
        raise _not_a_pattern(error) from None
    return Pattern(compiled.programsize, compiled)


def _not_a_pattern(error: Exception) -> NotAPattern:
    said = error.args[0] if error.args else b""
    problem = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if "too large" in problem:
        return TooLargePattern("it is too large", "write a shorter pattern, with smaller numbers of repetitions")
    what, _, where = problem.partition(": ")
    if what == "invalid escape sequence" and where[1:2].isdigit():
        return NotAPattern(problem, "RE2 has no back references: write the alternatives out")
    return NotAPattern(problem, next((fix for part, fix in _FIXES if part in problem), ""))
