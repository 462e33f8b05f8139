"""Turns of the projects in a list that is cut: what one of them causes a thousand times hides no other's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

Row = TypeVar("Row")
_WHOSE = re.compile(r"(?:^|/)projects/([^/]+)/|^\w+ ([^/ ]+)/")


def in_turns(rows: Iterable[tuple[str, Row]], at_a_time: int = 10) -> list[Row]:
    """Rows, some of each owner before more of any: what is cut off at the end hides no owner behind the many rows that
    another one has."""
    seen: Counter[str] = Counter()
    turns: dict[int, list[Row]] = {}
    for owner, row in rows:
        turns.setdefault(seen[owner] // at_a_time, []).append(row)
        seen[owner] += 1
    return [row for _, some in sorted(turns.items()) for row in some]


def whose(place: str) -> str:
    """Of a place in a message, the project in whose folder the file is, or the namespace of the object; "" for what is
    the cluster's own."""
    found = _WHOSE.search(place)
    return (found[1] or found[2]) if found else ""
