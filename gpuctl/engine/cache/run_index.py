"""The runs as they were seen last, and what is not as it was: objects are the same if they are the very same ones.

Cost: a glance at each object, and more only about those that are others now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Any, TypeVar

from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import Run, RunPhase

_STRIDE = 512
"""Objects compared at once."""

T = TypeVar("T")

_job_of: Callable[[Run], JobId] = attrgetter("job")


class RunIndex:
    """The runs in the cluster. Few jobs have more than one."""

    __slots__ = ("_all", "_first", "_others")

    def __init__(self) -> None:
        self._all: tuple[Run, ...] = ()
        self._first: dict[JobId, Run] = {}
        self._others: dict[JobId, tuple[Run, ...]] = {}

    def see(self, runs: tuple[Run, ...]) -> dict[JobId, None]:
        """What there is now. The jobs of those that are gone or have come."""
        gone, come = differences(self._all, runs, attrgetter("job", "digest"))
        self._all = runs
        for run in gone:
            left = list(self.of(run.job))
            left.remove(run)
            self._put(run.job, left)
        alone = dict(zip(map(_job_of, come), come, strict=True))
        if len(alone) == len(come) and alone.keys().isdisjoint(self._first.keys()):
            self._first.update(alone)
        else:
            for run in come:
                others = self.of(run.job)
                self._put(run.job, sorted((*others, run), key=_seniority) if others else (run,))
        return dict.fromkeys(alone) | dict.fromkeys(map(_job_of, gone))

    def _put(self, job: JobId, runs: Sequence[Run]) -> None:
        self._first.pop(job, None)
        self._others.pop(job, None)
        if runs:
            self._first[job] = runs[0]
        if len(runs) > 1:
            self._others[job] = tuple(runs[1:])

    def of(self, job: JobId) -> tuple[Run, ...]:
        """All of a job, by digest."""
        first = self._first.get(job)
        return () if first is None else (first, *self._others.get(job, ()))

    def of_digest(self, job: Job) -> Run | None:
        """The one of a job as it is declared now."""
        first = self._first.get(job.id)
        if first is None or first.digest == job.digest:
            return first
        return next((run for run in self._others.get(job.id, ()) if run.digest == job.digest), None)

    def only_in(self, phases: Collection[RunPhase], jobs: Iterable[JobId]) -> list[JobId]:
        """Those of some jobs of which a run may be in one of these phases."""
        return [
            job
            for job, run in zip(jobs, map(self._first.get, jobs), strict=True)
            if run is not None and (run.phase in phases or job in self._others)
        ]


def _seniority(run: Run) -> tuple[str, RunPhase, str]:
    return run.digest, run.phase, repr(run)


def differences(old: tuple[T, ...], new: tuple[T, ...], key: Callable[[T], Any]) -> tuple[list[T], list[T]]:
    """Objects that are in one of two tuples only; those that are equal count as the same.

    Cost: a glance at each, and more only about where they differ, if both are sorted by the key.
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
