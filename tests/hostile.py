"""An attacker's texts as Hypothesis strategies, and values of any of our types that contain such texts."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import re
import types
import typing
from functools import cache
from typing import Any

from hypothesis import strategies as st

ESCAPES = [
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\x9b31m",
    "\x00",
    "\x07",
    "\x08",
    "\x7f",
    "\r",
    "\n",
    "\t",
    "\x0b",
    "\x0c",
    "\x85",
]
BLANKS = ["\u3164", "\u115f", "\uffa0", "\u2800", "\u034f", "\u17b4", "\u180f", "\ufe0f", "\U000e0101"]
"""Invisible characters that Python takes for printable."""
MARKS = ["\u202e", "\u2066", "\u2069", "\u200f", "\u061c", "\u200b", "\u200d", "\u2060", "\ufeff", "\xad", "\u2028",
         "\u2029", "\U000e0041", "\ue000", "\uffff", "\udc80", *BLANKS]  # fmt: skip
OBEYED = re.compile(r"##\w*\[")
"""Commands that the runners of GitHub, Azure and TeamCity execute anywhere in a line."""
MARKUP = ["|", "`", "<img src=x>", "</details>", "@acme/team", "#1", "[a](https://x)", "https://x", "www.x", "*", "_",
          "%0A", "::error::", "##", "[error]", "##[add-mask]", "##vso[a]", ",", "\\", '"', "'", "```", "{", "}", "{0}",
          "{a.b}"]  # fmt: skip
TEXT = st.lists(st.sampled_from([*ESCAPES, *MARKS, *MARKUP, "a", "team-a", " ", "é", "漢", "7"]), max_size=6).map(
    "".join
)
"""Short texts that drive terminals, change the direction of text, are invisible, or are markup."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXT, below, max_size=3),
    max_leaves=6,
)
"""Values of JSON with such texts in them."""


def invisible(text: str) -> set[str]:
    """The invisible characters of a text, line breaks aside; and commands that a CI job's runner executes anywhere."""
    return {c for c in text if (not c.isprintable() and c != "\n") or c in BLANKS} | {*OBEYED.findall(text)}


@cache
def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, with hostile texts wherever it has text. Numbers are small: other tests have large ones."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, typing.NewType):
        return of(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(
            kind, **{field.name: of(hints[field.name]) for field in dataclasses.fields(kind) if field.init}
        )
    if isinstance(kind, type) and issubclass(kind, tuple):
        return st.builds(kind, **{name: of(hint) for name, hint in typing.get_type_hints(kind).items()})
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return st.one_of([of(each) for each in given])
    if origin is tuple and given[1:] != (...,):
        return st.tuples(*map(of, given))
    if origin in {tuple, frozenset}:
        return st.lists(of(given[0]), max_size=3).map(origin)
    if origin in {list, collections.abc.Sequence}:
        return st.lists(of(given[0]), max_size=3)
    if origin in {dict, collections.abc.Mapping}:
        return st.dictionaries(of(given[0]), of(given[1]), max_size=3)
    raise TypeError(f"no hostile values of {kind}")


_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(0, 40),
    bool: st.booleans(),
    type(None): st.none(),
    object: JSON,
    Any: JSON,
}
