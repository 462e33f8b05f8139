"""Elastic jobs: with how many workers they start, and which runs give up workers for other jobs.

In the snapshot an elastic run is one allocation of the workers it can't do without, and one of each surplus worker, or
of a few of them. Workers leave in the order in which their Job drops them, the highest index first. So a search sees
several evictions of a run: of its last worker, of its last two, and so on, and of the whole run. A set has at most one
of them. How the run regains workers: `admit/scale_up`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpuctl.engine.capacity.gang import PoolOption, slots_by_node
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.snapshot import Snapshot
from gpuctl.model.decision import Placement
from gpuctl.model.job import JobType

MAX_SIZES = 8
"""The most numbers of workers for which room is made by pausing other runs."""
_SHARE = 8
"""Workers leave one by one up to twice this number, then an eighth of those before at a time. So 10,000 workers are 71
evictions, and 12 % too many may leave. One by one, a run of 400 makes each search for victims take 0.02 s."""


def parted(allocations: Iterable[Allocation]) -> Iterator[Allocation]:
    """The allocations; each run that could give up workers is in parts. A service is not divided."""
    for allocation in allocations:
        job, workers = allocation.job, allocation.placement.workers
        divisible = job is not None and job.is_elastic and job.type is not JobType.INFERENCE and allocation.preemptible
        if job is None or not divisible or allocation.leaving or len(workers) <= job.min_workers:
            yield allocation
            continue
        parts: tuple[Allocation, ...] = ()
        each, left = allocation.per_worker.gpu_milli, len(workers)
        while left > job.min_workers:
            count = min(left - job.min_workers, max(1, (len(workers) - left) // _SHARE))
            place = Placement(workers=workers[left - count : left])
            part = replace(allocation, placement=place, total_milli=each * count, is_extra=True, leaves_with=parts)
            parts, left = (*parts, part), left - count
            yield part
        base = Placement(workers=workers[: job.min_workers])
        yield replace(allocation, placement=base, total_milli=each * job.min_workers, leaves_with=parts)


def smaller_options(
    snapshot: Snapshot, startable: Sequence[PoolOption], claimed: Sequence[PoolOption]
) -> Iterator[PoolOption]:
    """The sizes to try, most workers first: the `claimed` ones that need room made, then the largest that can start."""
    idle = sum(count for _, count in slots_by_node(snapshot.idle, startable[0])) if startable else 0
    can_start = [option for option in startable if option.request.workers <= idle]
    yield from [option for option in claimed if option not in can_start][:MAX_SIZES]
    yield from can_start[:1]
