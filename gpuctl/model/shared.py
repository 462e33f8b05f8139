"""Equal values as one object: ten thousand Jobs have the same owned fields, and most of their pod templates alike.

For JSON that is never changed in place. What is remembered is bounded, and forgotten in the order in which it was last
asked for: which of two equal values one gets may differ, that they are equal does not.
"""

from __future__ import annotations

import marshal
from typing import Any

REMEMBERED = 1 << 12
"""So many texts and so many parts are remembered, or up to twice as many; the parts of at most LONGEST_PART bytes."""
LONGEST_PART = 1 << 10
_LONGEST_TEXT = 256
_TREES = 64


class Shared:
    """What was seen of late, to be had again. Safe for threads: at worst two threads keep a value of their own."""

    __slots__ = ("_older_parts", "_older_texts", "_parts", "_texts", "_trees")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._older_texts: dict[str, str] = {}
        self._parts: dict[bytes, Any] = {}
        self._older_parts: dict[bytes, Any] = {}
        self._trees: list[Any] = []

    def text(self, value: str) -> str:
        """An equal text."""
        found = self._texts.get(value)
        if found is None:
            if len(value) > _LONGEST_TEXT:
                return value
            found = self._older_texts.get(value, value)
            if len(self._texts) >= REMEMBERED:
                self._older_texts, self._texts = self._texts, {}
            self._texts[found] = found
        return found

    def part(self, value: Any) -> Any:
        """An equal value, or one that has its parts in common with others. Cost: 2 us for a small one that is known."""
        kind = type(value)
        if kind is str:
            return self.text(value)
        if (kind is not dict and kind is not list) or not value:
            return value
        try:
            data = marshal.dumps(value, 0)
        except ValueError:  # no JSON
            return value
        if len(data) > LONGEST_PART:
            return self.in_parts(value)
        found = self._parts.get(data)
        if found is None:
            found = self._older_parts.get(data) or self.in_parts(value)
            if len(self._parts) >= REMEMBERED:
                self._older_parts, self._parts = self._parts, {}
            self._parts[data] = found
        return found

    def in_parts(self, value: Any) -> Any:
        """An equal value that is its own, the parts of which are shared."""
        if type(value) is dict:
            text, part = self.text, self.part
            return {text(key): part(below) for key, below in value.items()}
        return [self.part(item) for item in value] if type(value) is list else value

    def tree(self, value: Any) -> Any:
        """An equal value, of few that are large: to find it again costs a comparison with each."""
        trees = self._trees
        for place, tree in enumerate(trees):
            if tree == value:
                if place:
                    self._trees = [tree, *trees[:place], *trees[place + 1 :]]
                return tree
        made = self.in_parts(value)
        self._trees = [made, *trees[: _TREES - 1]]
        return made
