"""Shares equal values as one object: ten thousand Jobs have the same owned fields, and mostly equal pod templates.

For JSON that is never changed in place. The memory is bounded, and forgets first what was asked for longest ago. Which
of two equal values a caller gets may differ; that they are equal does not.
"""

from __future__ import annotations

import marshal
from typing import Any

REMEMBERED = 1 << 12
"""This many texts and this many parts are remembered, at most twice as many; parts of at most LONGEST_PART bytes."""
LONGEST_PART = 1 << 10
_LONGEST_TEXT = 256
_TREES = 64


class Shared:
    """The recently seen values. Safe for threads: at worst two threads each keep their own value."""

    __slots__ = ("_older_parts", "_older_texts", "_parts", "_texts", "_trees")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._older_texts: dict[str, str] = {}
        self._parts: dict[bytes, Any] = {}
        self._older_parts: dict[bytes, Any] = {}
        self._trees: list[Any] = []

    def text(self, value: str) -> str:
        """An equal text, shared with other callers."""
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
        """An equal value, which shares itself or its parts with others. Cost: 2 us for a small one that is known."""
        kind = type(value)
        if kind is str:
            return self.text(value)
        if (kind is not dict and kind is not list) or not value:
            return value
        try:
            data = marshal.dumps(value, 0)
        except ValueError:  # not JSON
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
        """An equal value, a new object whose parts are shared."""
        if type(value) is dict:
            text, part = self.text, self.part
            return {text(key): part(below) for key, below in value.items()}
        return [self.part(item) for item in value] if type(value) is list else value

    def tree(self, value: Any) -> Any:
        """An equal value, for the few large ones: finding it costs a comparison with each of them."""
        trees = self._trees
        for place, tree in enumerate(trees):
            if tree == value:
                if place:
                    self._trees = [tree, *trees[:place], *trees[place + 1 :]]
                return tree
        made = self.in_parts(value)
        self._trees = [made, *trees[: _TREES - 1]]
        return made
