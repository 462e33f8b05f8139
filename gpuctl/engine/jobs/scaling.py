"""Services whose workers follow their load, once it is known how many each asks for (`effective`)."""

from __future__ import annotations

from bisect import bisect

from gpuctl.engine.capacity.nodes import Capacity
from gpuctl.model.decision import Placement
from gpuctl.model.ids import NodeName
from gpuctl.model.job import Job
from gpuctl.model.state import ACTIVE, Run


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
