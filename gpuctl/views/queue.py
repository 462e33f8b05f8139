"""The queue: each waiting job with its position and its forecast start, as far as they are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.k8s.objects import uid
from gpuctl.model.ids import JobId
from gpuctl.model.overview import Overview
from gpuctl.model.state import ClusterState
from gpuctl.model.units import Instant
from gpuctl.views.jobs import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A job's position in the queue of all projects, from 1. `start_ms` is None where no start is forecast."""

    position: int
    start_ms: Instant | None = None


def turns_of(jobs: Sequence[JobView], state: ClusterState, overview: Overview) -> Mapping[JobId, Turn]:
    """The turns of those jobs that are in the published queue."""
    found: dict[JobId, Turn] = {}
    for job in jobs:
        mine = uid(state.live.get(job.ref, {}))
        position = overview.position(mine)
        if position is not None:
            found[job.id] = Turn(position=position, start_ms=overview.start_ms(mine))
    return found


def in_order(pending: Sequence[JobView], turns: Mapping[JobId, Turn]) -> tuple[JobView, ...]:
    """Waiting jobs by position; those without one come last, longest wait first."""
    last = len(turns) + max((turn.position for turn in turns.values()), default=0)

    def key(job: JobView) -> tuple[int, Instant, JobId]:
        turn = turns.get(job.id)
        return (last if turn is None else turn.position), job.run.queued_at_ms, job.id

    return tuple(sorted(pending, key=key))
