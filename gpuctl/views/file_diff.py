"""The difference of two versions of a file, in the unified form of `diff` and Git."""

from __future__ import annotations

import difflib

from gpuctl.views.styled import Line, Segment

_STYLES = {"+": "good", "-": "bad", "@": "dim"}
NOTHING = "/dev/null"


def file_diff(path: str, before: bytes | None, after: bytes | None) -> list[Line]:
    """The lines that differ, with three lines around them. Bytes that are not UTF-8, and line breaks of other systems,
    are not shown as they are: the output is for people, not for another program to apply."""
    old, new = _lines(before), _lines(after)
    names = (NOTHING if before is None else f"a/{path}", NOTHING if after is None else f"b/{path}")
    shown: list[Line] = []
    for line in difflib.unified_diff(old, new, *names, lineterm=""):
        head = line.startswith(("---", "+++")) and len(shown) < 2
        style = "strong" if head else _STYLES.get(line[:1], "")
        shown.extend((Segment(part, style),) for part in line.split("\n"))
    return shown


def _lines(content: bytes | None) -> list[str]:
    """The lines without their breaks; a last line without a break says so, as in Git."""
    text = (content or b"").decode("utf-8", errors="replace")
    lines = text.replace("\r\n", "\n").split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines
