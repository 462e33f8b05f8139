"""What changed between two lists of jobs or runs."""

from __future__ import annotations

from itertools import compress, count
from operator import is_not
from typing import TypeVar

T = TypeVar("T")


def differences(old: tuple[T, ...], new: tuple[T, ...]) -> tuple[list[T], list[T]]:
    """The objects that only one of two tuples has, in their order: (gone, new). The same are the very same objects.

    Cost: an identity comparison for each before the first that differs and after the last, and more for those between.
    """
    first = _same(old, new)
    rest, others = old[first:], new[first:]
    last = _same(rest[::-1], others[::-1])
    gone = {id(each): each for each in rest[: len(rest) - last]}
    come = [each for each in others[: len(others) - last] if gone.pop(id(each), None) is None]
    return list(gone.values()), come


def _same(old: tuple[T, ...], new: tuple[T, ...]) -> int:
    """How many objects at the beginning are the same."""
    return next(compress(count(), map(is_not, old, new)), min(len(old), len(new)))
