"""Memory of computed values: a value is not computed again while its inputs stay equal.

The memory changes no result, only the cost: a maker must be a function of its inputs. It starts empty, may be thrown
away at any time, and holds no more than was asked for last; a memo, no more than in the last two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress, count, repeat
from operator import is_not
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Values by key, each with the inputs it was made from. Comparing inputs that are the same objects is free.

    `made`: how many values were made so far because none with these inputs was remembered.
    """

    __slots__ = ("_before", "_now", "made")

    def __init__(self) -> None:
        self.made = 0
        self._before: dict[K, tuple[tuple[object, ...], V]] = {}
        self._now: dict[K, tuple[tuple[object, ...], V]] = {}

    def turn(self) -> None:
        """Begin another turn: what is not asked for in it is forgotten at the next."""
        self._before, self._now = self._now, {}

    def get(self, key: K, inputs: tuple[object, ...], make: Callable[[], V]) -> V:
        """The value of the turn before if its inputs were equal to these; else a new one."""
        known = self._before.get(key)
        if known is None or known[0] != inputs:
            known = inputs, make()
            self.made += 1
        self._now[key] = known
        return known[1]

    def latest(self) -> Memo[K, V]:
        """A memo of the values that this turn has asked for."""
        memo: Memo[K, V] = Memo()
        memo._now = self._now
        return memo

    def __len__(self) -> int:
        """The number of values that this turn has asked for."""
        return len(self._now)


_UNKNOWN = object()


class Sweep(Generic[K, V]):
    """Values for many keys at once. Only those with a changed input are made again.

    Inputs come as columns, one column of each kind for all keys. Columns are compared by identity, and by value only
    where that differs; so Python takes no step of its own for unchanged inputs, which nearly all are.
    """

    __slots__ = ("_columns", "_keys", "_values")

    def __init__(self) -> None:
        self._keys: list[K] = []
        self._columns: list[list[object]] = []
        self._values: list[V] = []

    def over(self, keys: Iterable[K], columns: Iterable[Iterable[object]], make: Callable[[int], V]) -> list[V]:
        """The value for each key, in their order. `make` is given the position of a key and of its inputs."""
        names, inputs = list(keys), [list(column) for column in columns]
        before, values = self._columns or [[] for _ in inputs], self._values
        if names != self._keys:
            before, values = self._laid_out(names, before)
        stale: set[int] = set()
        for old, new in zip(before, inputs, strict=True):
            moved = compress(count(), map(is_not, old, new))
            stale.update(place for place in moved if old[place] is _UNKNOWN or old[place] != new[place])
        values = values.copy()
        for place in sorted(stale):
            values[place] = make(place)
        self._keys, self._columns, self._values = names, inputs, values
        return values

    def _laid_out(self, keys: Sequence[K], before: Sequence[Sequence[object]]) -> tuple[list[list[object]], list[V]]:
        """The old columns and values at the keys' new positions; `_UNKNOWN` for new keys."""
        at = self._where(keys)
        kept: list[V] = [*self._values, _UNKNOWN]  # type: ignore[list-item]
        return [list(map([*column, _UNKNOWN].__getitem__, at)) for column in before], list(map(kept.__getitem__, at))

    def _where(self, keys: Sequence[K]) -> list[int]:
        """The old position of each key, -1 for a new one. Nearly all keys are the same objects, which is quick to find
        out."""
        places = dict(zip(map(id, self._keys), count()))
        at = list(map(places.get, map(id, keys), repeat(-1)))
        if -1 in at:
            left = {self._keys[place]: place for place in set(range(len(self._keys))).difference(at)}
            for place, key in enumerate(keys):
                if at[place] < 0:
                    at[place] = left.get(key, -1)
        return at
