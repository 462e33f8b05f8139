"""Bring a cluster to rest as values: schedule, carry out, and schedule again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from gpuctl.engine import EngineCache, schedule
from gpuctl.model.decision import Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState
from gpuctl.model.steps import Steps
from gpuctl.model.units import Instant

Jobs: TypeAlias = Mapping[JobId, Job]
"""Declared jobs by their names."""
MAX_CYCLES = 24
"""The most schedules at one instant: pauses, the starts that they are for, and what follows from those."""


def come_to_rest(
    declared: Declared, state: ClusterState, at_ms: Instant, engine_cache: EngineCache
) -> Iterator[tuple[Schedule, ClusterState]]:
    """Schedule repeatedly at one instant. Yields each schedule with the state after it; the last is the cluster at
    rest.

    Cost: a few schedules; the first one with an empty cache is a cold one.
    """
    steps = Steps(declared)
    for _ in range(MAX_CYCLES):
        decided = schedule(declared, state, at_ms, engine_cache)
        after = steps.carried_out(state, decided)
        if after is state:
            after = steps.settled(state, at_ms)
        yield decided, after
        if after is state:
            return
        state = after
