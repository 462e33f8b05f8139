"""What was made of what, kept for one turn: values that would come out the same again are not made again.

A memo changes no result, only what it costs: its maker must be a function of the inputs it is given. It is empty at
first, may be thrown away at any time, and holds no more than one turn asked for and the turn before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Values by key, each with the inputs it was made of. Inputs that are the same objects are compared at no cost."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: dict[K, tuple[tuple[object, ...], V]] = {}
        self._now: dict[K, tuple[tuple[object, ...], V]] = {}

    def turn(self) -> None:
        """Another turn begins: what is not asked for in it is forgotten with the next."""
        self._before, self._now = self._now, {}

    def get(self, key: K, inputs: tuple[object, ...], make: Callable[[], V]) -> V:
        """The value of the turn before, if its inputs were equal to these; else a new one."""
        known = self._before.get(key)
        if known is None or known[0] != inputs:
            known = inputs, make()
        self._now[key] = known
        return known[1]

    def __len__(self) -> int:
        """How many values this turn has asked for."""
        return len(self._now)
