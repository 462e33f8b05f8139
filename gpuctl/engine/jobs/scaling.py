"""Services whose workers follow their load: how many of them each asks for in this cycle.

Example: `web` has `minWorkers: 1`, `workers: 8` and `scaling`. It starts with one worker. Its autoscaler then asks for
four: to the engine it is now a job of four workers that runs with one, and gets the others by the rights of an elastic
run. The GPUs of the four that it may still ask for are anybody's. If it asks for two again, it keeps two.

What an autoscaler asks for counts between the bounds of the declaration, so no load gives a service more than it could
have asked for without scaling.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, ClusterState, Run


class ScaledServices:
    """The services with `scaling` of the last declarations, with as many workers as they asked for last."""

    __slots__ = ("_applied", "_jobs", "_places", "_scaled")

    def __init__(self) -> None:
        self._jobs: tuple[Job, ...] = ()
        self._places: dict[JobId, int] = {}
        self._scaled: dict[JobId, Job] = {}
        self._applied: tuple[Job, ...] = ()

    def applied(self, declared: Declared, state: ClusterState) -> Declared:
        """The declarations with such services as jobs of the workers that they ask for.

        The same jobs as in the last cycle where none asks for another number. Cost: one look at each job when jobs have
        changed; then linear in the runs. Nothing where there are no such services.
        """
        if declared.jobs is not self._jobs:
            self._read(declared.jobs)
        if not self._places:
            return declared
        before = dict(self._scaled)
        self._scaled.update(self._asked(state))
        if self._scaled != before:
            jobs = [*self._jobs]
            for name, at in self._places.items():
                jobs[at] = self._scaled[name]
            self._applied = tuple(jobs)
        return replace(declared, jobs=self._applied)

    def _read(self, jobs: tuple[Job, ...]) -> None:
        self._jobs = jobs
        self._places = {job.id: at for at, job in enumerate(jobs) if job.scaling is not None}
        self._scaled, self._applied = {}, jobs

    def _asked(self, state: ClusterState) -> Iterator[tuple[JobId, Job]]:
        """The services that ask for another number of workers than in the last cycle."""
        runs = {run.job: run for run in state.runs if run.job in self._places and run.phase in ACTIVE}
        for name, at in self._places.items():
            job, last = self._jobs[at], self._scaled.get(name)
            workers = _workers(job, runs.get(name))
            if last is None or last.workers != workers:
                yield name, replace(job, workers=workers)


_FIELDS = attrgetter("asked_workers", "placement")


def _workers(job: Job, run: Run | None) -> int:
    """How many workers a service asks for: the fewest until it runs, then what its autoscaler says."""
    if run is None or run.digest != job.digest:
        return job.min_workers
    asked, placement = _FIELDS(run)
    has = len(placement.workers) if placement is not None else 0
    return max(job.min_workers, min(job.workers, has if asked is None else asked))


def has_no_load(job: Job, run: Run | None) -> bool:
    """Whether a service that may scale to zero has done so: its autoscaler took the last worker, and asks for none."""
    at_zero = job.scaling is not None and job.scaling.to_zero and run is not None and run.asked_workers == 0
    return at_zero and run is not None and run.phase not in ACTIVE


def within_asked(job: Job, placement: Placement) -> Placement:
    """Where a service runs, without workers that it does not ask for any more. Its Deployment chooses which pods leave;
    where those are that stay, the next cycle observes."""
    if job.scaling is None or len(placement.workers) <= job.workers:
        return placement
    return Placement(workers=placement.workers[: job.workers])


def further_nodes(job: Job, placement: Placement, capacity: Capacity) -> tuple[NodeName, ...]:
    """The nodes that further workers of a service may go to: as many of its pool as it may have more workers.

    Its pods name them from its start on, for a pod template can't be changed later without a new start. They are the
    next by name, so that services that start on different nodes have different ones.
    """
    if job.scaling is None or not placement.workers:
        return ()
    first = capacity.nodes.get(placement.workers[0].node)
    if first is None or first.pool is None:
        return ()
    mine = placement.nodes
    others = [space.name for space in capacity.usable.get(first.pool, ()) if space.name not in mine]
    at = bisect(others, first.name)
    return tuple([*others[at:], *others[:at]][: job.scaling.most - len(placement.workers)])
