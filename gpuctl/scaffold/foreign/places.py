"""The line and column of an object in a JSON file, or of a field of it, counted as editors do.

The file is read again only to report something, and only as far as needed: the JSON parser skips everything before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
_BLANK = re.compile(r"[ \t\n\r]*")
_INDEX = re.compile(r"\[(\d{1,9})\]")
_END = (".", "[", " ", ",", ":")
_LEAD = "that ", "the job waits for "
"""Words before the name of a field."""


class Places:
    """The places in one JSON file. Cost: each list is read once."""

    def __init__(self, file: str, content: bytes) -> None:
        self._file = file
        self._text = content.decode("utf-8-sig")
        self._lists: dict[int, list[int]] = {}
        self._skip = json.JSONDecoder().raw_decode

    def of(self, path: Path, told: str = "") -> str:
        """`FILE:LINE:COLUMN` of the field that `told` begins with, in the object at that path; of the object itself if
        `told` names no field."""
        at = self._after_blank(0)
        for step in path:
            found = self._element(at, step) if isinstance(step, int) else self._member(at, step)
            if found is None:
                break
            at = found[1]
        for words in _LEAD:
            told = told.removeprefix(words)
        spec = self._member(at, "spec")
        within = (self._named(start, told) for start in (at, *([spec[1]] if spec else [])))
        offset = next((found for found in within if found is not None), at)
        line, before = self._text.count("\n", 0, offset) + 1, self._text.rfind("\n", 0, offset)
        return f"{self._file}:{line}:{offset - before}"

    def _named(self, at: int, named: str) -> int | None:
        """The place of the key of the field that a text begins with, as `a.b[2].c`; None if it begins with none."""
        found: int | None = None
        while True:
            index = _INDEX.match(named)
            if index is not None:
                element = self._element(at, int(index[1]))
                key, named = element, named[index.end() :]
            else:
                fits = [name for name, _, _ in self._members(at) if self._is_first(name, named)]
                name = max(fits, key=len, default=None)
                key = None if name is None else self._member(at, name)
                named = named[len(name or "") :]
            if key is None:
                return found
            found, at = key
            named = named.removeprefix(".")

    @staticmethod
    def _is_first(name: str, named: str) -> bool:
        return bool(name) and named.startswith(name) and named[len(name) : len(name) + 1] in {"", *_END}

    def _member(self, at: int, name: str) -> tuple[int, int] | None:
        """The places of a member's key and value."""
        return next(((key, value) for each, key, value in self._members(at) if each == name), None)

    def _members(self, at: int) -> Iterator[tuple[str, int, int]]:
        if self._text[at : at + 1] != "{":
            return
        key = self._after_blank(at + 1)
        while self._text[key : key + 1] == '"':
            name, end = self._skip(self._text, key)
            value = self._after_blank(self._after_blank(end) + 1)
            yield str(name), key, value
            key = self._next(value)

    def _element(self, at: int, index: int) -> tuple[int, int] | None:
        if at not in self._lists:
            self._lists[at] = list(self._elements(at))
        known = self._lists[at]
        return (known[index], known[index]) if index < len(known) else None

    def _elements(self, at: int) -> Iterator[int]:
        if self._text[at : at + 1] != "[":
            return
        value = self._after_blank(at + 1)
        while self._text[value : value + 1] not in {"]", ""}:
            yield value
            value = self._next(value)

    def _next(self, value: int) -> int:
        """The beginning of what comes after a value and a comma; the end of the text if no comma follows."""
        _, end = self._skip(self._text, value)
        end = self._after_blank(end)
        return self._after_blank(end + 1) if self._text[end : end + 1] == "," else len(self._text)

    def _after_blank(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        return at if found is None else found.end()
