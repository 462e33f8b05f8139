"""Things that ask for CPU and memory, so that those for which there is enough are found without a look at each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar

from gpuctl.model.units import CpuMilli, MemBytes

_FEW = 16
"""So many are not divided any more."""

T = TypeVar("T")

Fits: TypeAlias = Callable[[CpuMilli, MemBytes], bool]
"""A question that has the answer yes for whatever asks for no more of either than something it is true of."""


class Sized(Generic[T]):
    """A set of them. Cost of a change: at the next question a sort of all."""

    __slots__ = ("_cell", "_sizes")

    def __init__(self) -> None:
        self._sizes: dict[T, tuple[CpuMilli, MemBytes]] = {}
        self._cell: _Cell[T] | None = None

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def __iter__(self) -> Iterator[T]:
        return iter(self._sizes)

    def __contains__(self, thing: T) -> bool:
        return thing in self._sizes

    def add(self, thing: T, cpu_milli: CpuMilli, mem_bytes: MemBytes) -> None:
        """One more."""
        self._sizes[thing] = cpu_milli, mem_bytes
        self._cell = None

    def remove(self, thing: T) -> None:
        """One less."""
        del self._sizes[thing]
        self._cell = None

    @property
    def least(self) -> tuple[CpuMilli, MemBytes]:
        """None asks for less of either. There is one at least."""
        return self._whole.least

    def fitting(self, fits: Fits) -> Iterator[T]:
        """Those that fit, in no order. Cost: a few questions where most or few do, else as the square root of all."""
        return self._whole.fitting(fits) if self._sizes else iter(())

    @property
    def _whole(self) -> _Cell[T]:
        if self._cell is None:
            self._cell = _Cell([(*size, thing) for thing, size in self._sizes.items()], 0)
        return self._cell


class _Cell(Generic[T]):
    """Some of them: what none asks less than, what none asks more than, and their halves."""

    __slots__ = ("_all", "_halves", "least", "most")

    def __init__(self, all_: list[tuple[CpuMilli, MemBytes, T]], by: int) -> None:
        self._all = all_
        cpu, mem = [each[0] for each in all_], [each[1] for each in all_]
        self.least = min(cpu), min(mem)
        self.most = max(cpu), max(mem)
        self._halves: tuple[_Cell[T], ...] = ()
        if len(all_) > _FEW and self.least != self.most:
            all_.sort(key=itemgetter(by))
            middle = len(all_) // 2
            self._halves = _Cell(all_[:middle], 1 - by), _Cell(all_[middle:], 1 - by)

    def fitting(self, fits: Fits) -> Iterator[T]:
        """See `Sized.fitting`."""
        if not fits(*self.least):
            return
        if self.least == self.most or fits(*self.most):
            yield from [thing for *_, thing in self._all]
            return
        for half in self._halves:
            yield from half.fitting(fits)
        if not self._halves:
            yield from [thing for cpu_milli, mem_bytes, thing in self._all if fits(cpu_milli, mem_bytes)]
