"""What changed between two lists of jobs or runs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress, count
from operator import is_not
from typing import Any, TypeVar

_STRIDE = 512
"""How many objects are compared at once."""

T = TypeVar("T")


def differences(old: tuple[T, ...], new: tuple[T, ...], key: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """The objects that only one of two tuples has: (gone, new). Equal objects count as the same.

    Cost: an identity comparison for each object, and more only where they differ, if both are sorted by the key.
    """
    gone: list[T] = []
    come: list[T] = []
    if old is new:
        return gone, come
    i = j = 0
    while i < len(old) and j < len(new):
        before, after = old[i : i + _STRIDE], new[j : j + _STRIDE]
        if before == after:
            i, j = i + _STRIDE, j + _STRIDE
            continue
        same = next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))
        i, j = i + same, j + same
        if i == len(old) or j == len(new) or same == _STRIDE:
            continue
        mine, theirs = key(old[i]), key(new[j])
        is_gone, is_come = mine <= theirs, theirs <= mine
        if old[i] != new[j]:
            gone.extend(old[i : i + is_gone])
            come.extend(new[j : j + is_come])
        i, j = i + is_gone, j + is_come
    gone.extend(old[i:])
    come.extend(new[j:])
    return gone, come
