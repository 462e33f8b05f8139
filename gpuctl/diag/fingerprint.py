"""Recognise a diagnostic again after its file has changed elsewhere."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from gpuctl.diag.diagnostic import Diagnostic

Key = tuple[str, str, str, str, str]


def fingerprints(diagnostics: Iterable[Diagnostic]) -> Iterator[tuple[Diagnostic, str]]:
    """Each diagnostic with a fingerprint of 32 hex digits; all are different.

    It is made of the code, the broken policy, the file, the text of the line and the marked part of it: moving the
    line, or changing other lines, does not change it. Equal mistakes on equal lines are told apart by their order in
    the file.
    """
    seen: Counter[Key] = Counter()
    for diagnostic in diagnostics:
        key = known_by(diagnostic)
        seen[key] += 1
        text = "\0".join((*key, str(seen[key])))
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        yield diagnostic, digest[:32]


def known_by(diagnostic: Diagnostic) -> Key:
    """The parts of a diagnostic that stay when its line moves; without a line, its message takes the line's place."""
    span, line = diagnostic.span, diagnostic.source_line
    marked = line[span.column - 1 : span.end_column - 1]
    return diagnostic.code, diagnostic.policy, span.file, line.strip() or diagnostic.message, marked
