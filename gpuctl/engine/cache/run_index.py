"""The observed runs by job, and what changed since they were read last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain, compress, count
from operator import attrgetter, is_not
from typing import Any, TypeVar

from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase

_STRIDE = 512
"""Objects compared at once."""

T = TypeVar("T")


class RunIndex:
    """The runs in the cluster by job; few jobs have more than one."""

    __slots__ = ("_all", "_of")

    def __init__(self) -> None:
        self._all: tuple[Run, ...] = ()
        self._of: dict[JobId, tuple[Run, ...]] = {}

    def see(self, runs: tuple[Run, ...]) -> dict[JobId, None]:
        """Read the runs there are now. Returns the jobs of those that are gone or new."""
        gone, new = differences(self._all, runs, attrgetter("job", "digest"))
        self._all = runs
        for run in gone:
            left = list(self._of.pop(run.job))
            left.remove(run)
            if left:
                self._of[run.job] = tuple(left)
        for run in new:
            others = self._of.get(run.job)
            self._of[run.job] = tuple(sorted((*others, run), key=_seniority)) if others else (run,)
        return dict.fromkeys([run.job for run in chain(new, gone)])

    def of(self, job: JobId) -> tuple[Run, ...]:
        """The runs of a job, by digest."""
        return self._of.get(job, ())

    def of_digest(self, job: Job) -> Run | None:
        """The run of a job as it is declared now."""
        for run in self._of.get(job.id, ()):
            if run.digest == job.digest:
                return run
        return None

    def only_in(self, phases: Collection[RunPhase], jobs: Iterable[JobId]) -> list[JobId]:
        """The jobs of which a run is in one of these phases."""
        return list(dict.fromkeys([job for job in jobs for run in self._of.get(job, ()) if run.phase in phases]))


def _seniority(run: Run) -> tuple[str, RunPhase, str]:
    return run.digest, run.phase, repr(run)


def differences(old: tuple[T, ...], new: tuple[T, ...], key: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """The objects that only one of two tuples has: (gone, new). Equal objects count as the same.

    Cost: an identity comparison for each, and more only where they differ, if both are sorted by the key.
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
