"""Strategies that many tests use. Each is made once: making and checking one takes far longer than drawing from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from hypothesis import strategies as st


@lru_cache(maxsize=None, typed=True)  # 1 is not True
def among(*values: Any) -> st.SearchStrategy[Any]:
    """One of these."""
    return st.sampled_from(values)


@lru_cache(maxsize=None, typed=True)
def perhaps(*values: Any) -> st.SearchStrategy[Any]:
    """None, or one of these."""
    return st.none() | among(*values)


@cache
def shuffled(values: Sequence[Any]) -> st.SearchStrategy[list[Any]]:
    """These in any order."""
    return st.permutations(values)


@cache
def at_most_two(number: int, *, unique: bool = False) -> st.SearchStrategy[list[int]]:
    """Up to two numbers below this one."""
    return st.lists(st.sampled_from(range(number)), max_size=2, unique=unique)
