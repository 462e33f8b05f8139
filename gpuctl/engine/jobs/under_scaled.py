"""Under-scaled runs: elastic runs with fewer workers than they ask for, and where more workers could go.

The pods of a run are made with one placement as long as it runs. So it scales up in place only where its pods can go:
to the nodes that they name and, if they claim GPUs by name, to those GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpuctl.engine.capacity.free import FreeCapacity, NodeFree, copy_of
from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.engine.jobs.demand import Demand
from gpuctl.engine.jobs.runs import Allocation
from gpuctl.engine.jobs.static_fit import StaticFit
from gpuctl.model.decision import Placement, WorkerPlacement
from gpuctl.model.declared import Way
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import ACTIVE
from gpuctl.model.units import GpuMilli

CLOSED: GpuMilli = 1 << 50
"""Taken of a device that a run's pods can't use: more than could ever become free."""


@dataclass(slots=True, eq=False)
class UnderScaled:
    """A run with fewer workers than it asks for. `option`: the request for one more worker.

    `gained`: places that it has in this cycle for missing workers. Of these, `coming` many are not idle yet, and for
    those in `paid` other runs were paused. `workers` grows by them as it scales up.
    """

    allocation: Allocation
    job: Job
    made_with: Placement
    option: PoolOption
    workers: list[WorkerPlacement] = field(init=False)
    gained: list[WorkerPlacement] = field(default_factory=list)
    paid: list[WorkerPlacement] = field(default_factory=list)
    coming: int = 0

    def __post_init__(self) -> None:
        self.workers = list(self.allocation.placement.workers)

    @property
    def nodes(self) -> set[NodeName]:
        """The nodes that its pods can go to."""
        return self.made_with.nodes

    @property
    def is_claimed(self) -> bool:
        """Whether its pods ask for GPUs by name."""
        return self.option.pool.way is not Way.COUNT

    def most(self, capacity: Capacity) -> int:
        """The most workers that it could have without a new start, if nothing else ran on its nodes."""
        if self.is_claimed:
            return min(self.job.workers, len(self.made_with.workers))
        request = self.option.request._replace(workers=self.job.workers)
        most = 0
        for node in self.nodes:
            space = capacity.nodes.get(node)
            if space is not None and space.usable and space.pool == self.option.pool.name:
                most += copy_of(space, space.pool).slots(request)
        return min(self.job.workers, most)

    def missing(self, capacity: Capacity) -> int:
        """How many more workers it could have in place."""
        return max(0, self.most(capacity) - len(self.workers) - len(self.gained))

    @property
    def can_grow(self) -> bool:
        """Whether new pods can be made now. A Job makes none for an index whose last pod is still leaving. A Deployment
        does; and it is not known when a lost node's pods will be gone."""
        return self.allocation.run.leaving is None or self.job.type is JobType.INFERENCE

    def devices_on(self, node: NodeName) -> frozenset[int] | None:
        """The devices of a node that its pods can have; None for any."""
        if not self.is_claimed:
            return None
        return frozenset(index for worker in self.made_with.workers if worker.node == node for index in worker.gpus)

    def can_use(self, worker: WorkerPlacement) -> bool:
        """Whether a new pod can have this place."""
        usable = self.devices_on(worker.node)
        return worker.node in self.nodes and (usable is None or usable.issuperset(worker.gpus))

    def usable(self, free: FreeCapacity) -> FreeCapacity:
        """What is free where its pods can go."""
        rooms: dict[NodeName, NodeFree] = {}
        for room in filter(None, map(free.rooms.get, self.nodes)):
            devices = self.devices_on(room.name)
            found = rooms[room.name] = copy_of(room, room.pool)
            if devices is not None:
                found.gpu_milli = [
                    milli if index in devices else milli - CLOSED for index, milli in enumerate(room.gpu_milli)
                ]
                found.whole = len(found.whole_devices())
        return FreeCapacity(rooms, free.counters, free.mix)


def under_scaled(allocations: Iterable[Allocation], static_fit: StaticFit) -> Iterator[UnderScaled]:
    """The under-scaled runs among some allocations."""
    for allocation in allocations:
        job, run = allocation.job, allocation.run
        if job is None or run.phase not in ACTIVE or len(allocation.placement.workers) >= job.workers:
            continue
        if run.made_with is None:
            continue
        for option in static_fit.options(job):
            if static_fit.capacity.pool_of(allocation.placement) == option.pool.name:
                yield UnderScaled(allocation, job, run.made_with, option.of(1))


def count_growth(runs: Iterable[UnderScaled], capacity: Capacity, demand: Demand) -> None:
    """Count the missing workers that the runs could use as demand of their projects."""
    for run in runs:
        missing = run.missing(capacity)
        if missing and run.allocation.domain is not None:
            demand.grow(run.allocation.domain, run.allocation.project, missing * run.option.request.gpu_milli)
