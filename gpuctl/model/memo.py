"""What was made of what, kept for one turn: values that would come out the same again are not made again.

They change no result, only what it costs: a maker must be a function of the inputs it is given. They are empty at
first, may be thrown away at any time, and hold no more than was asked for last, a memo than in the last two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress, count, repeat
from operator import is_not
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Values by key, each with the inputs it was made of. Inputs that are the same objects are compared at no cost.

    `made`: how many values were made so far, because there was none of these inputs.
    """

    __slots__ = ("_before", "_now", "made")

    def __init__(self) -> None:
        self.made = 0
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
            self.made += 1
        self._now[key] = known
        return known[1]

    def latest(self) -> Memo[K, V]:
        """A memo of what this turn has asked for."""
        memo: Memo[K, V] = Memo()
        memo._now = self._now
        return memo

    def __len__(self) -> int:
        """How many values this turn has asked for."""
        return len(self._now)


_UNKNOWN = object()


class Sweep(Generic[K, V]):
    """Values for all of many keys at once, that are made again only where an input has changed since the last time.

    Inputs come as columns, one of each kind for all keys, so that for what stays (nearly all, nearly always) Python
    takes no step of its own: columns are compared by identity, and only where that differs by value.
    """

    __slots__ = ("_columns", "_keys", "_values")

    def __init__(self) -> None:
        self._keys: list[K] = []
        self._columns: list[list[object]] = []
        self._values: list[V] = []

    def over(self, keys: Iterable[K], columns: Iterable[Iterable[object]], make: Callable[[int], V]) -> list[V]:
        """The value for each key, in their order. `make` is given the place of a key and of its inputs."""
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
        """What there was, at the places that keys have now; `_UNKNOWN` for new ones."""
        at = self._where(keys)
        kept: list[V] = [*self._values, _UNKNOWN]  # type: ignore[list-item]
        return [list(map([*column, _UNKNOWN].__getitem__, at)) for column in before], list(map(kept.__getitem__, at))

    def _where(self, keys: Sequence[K]) -> list[int]:
        """The place that each key had, -1 for a new one. Nearly all are the same objects, which is told sooner."""
        places = dict(zip(map(id, self._keys), count()))
        at = list(map(places.get, map(id, keys), repeat(-1)))
        if -1 in at:
            left = {self._keys[place]: place for place in set(range(len(self._keys))).difference(at)}
            for place, key in enumerate(keys):
                if at[place] < 0:
                    at[place] = left.get(key, -1)
        return at
