"""Orders a list that will be cut off so that a thousand rows of one project do not hide those of another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

Row = TypeVar("Row")
_WHOSE = re.compile(r"(?:^|/)projects/([^/]+)/|^\w+ ([^/ ]+)/")


def in_turns(rows: Iterable[tuple[str, Row]], at_a_time: int = 10) -> list[Row]:
    """The rows, `at_a_time` of each owner before more of any: cutting the list off at the end hides no owner behind
    another one's many rows."""
    seen: Counter[str] = Counter()
    turns: dict[int, list[Row]] = {}
    for owner, row in rows:
        turns.setdefault(seen[owner] // at_a_time, []).append(row)
        seen[owner] += 1
    return [row for _, some in sorted(turns.items()) for row in some]


def whose(place: str) -> str:
    """The project in whose folder a message's file is, or the namespace of its object; "" for the cluster's own."""
    found = _WHOSE.search(place)
    return (found[1] or found[2]) if found else ""
