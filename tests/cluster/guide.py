"""docs/operate.md as a test reads it: the commands of each section, and the table of what goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operate.md").read_text()
_BLOCK = re.compile(
    r"^## (?P<section>[^\n]+)$|^(?P<elsewhere><!-- elsewhere -->\n)?```(?P<kind>sh|yaml)\n(?P<lines>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(kind: str, *, elsewhere: bool = False) -> dict[str, list[str]]:
    """The page's blocks of a kind, by section; `elsewhere`: the blocks with that mark."""
    found: dict[str, list[str]] = {}
    section = ""
    for block in _BLOCK.finditer(PAGE):
        if block["section"]:
            section = block["section"]
        elif block["kind"] == kind and bool(block["elsewhere"]) is elsewhere:
            found.setdefault(section, []).append(block["lines"])
    return found


def commands(section: str) -> list[str]:
    """The commands of a section, in their order."""
    lines = "".join(blocks("sh")[section]).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip()]


def wrong() -> dict[str, set[str]]:
    """The troubles in the page's table, by its words, with the codes that report them."""
    table = PAGE.partition("## When things go wrong\n")[2].splitlines()
    rows = [line.strip("| ").split(" | ") for line in table if line.startswith("| ")][1:]
    assert all(len(row) == 4 for row in rows)
    return {row[0]: set(re.findall(r"GPU\d{4}", row[2])) for row in rows}
