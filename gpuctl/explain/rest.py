"""A cluster at rest: every decision for its declarations at one instant has been carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gpuctl.engine import EngineCache
from gpuctl.explain.progress import come_to_rest
from gpuctl.model.decision import Admit, Displace, Move, Pending, Preempt, Reclaim, Resize, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Forecast
from gpuctl.model.ids import JobId
from gpuctl.model.state import ACTIVE, ClusterState, Run
from gpuctl.model.units import Instant

Pause: TypeAlias = Reclaim | Preempt | Displace | Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A cluster at rest, its last schedule, and the pauses, starts and resizes that led to it.

    `engine_cache`: the engine's cache, to continue with. `forecasts`: of all waiting jobs, if they are known already.
    """

    declared: Declared
    state: ClusterState
    decided: Schedule
    engine_cache: EngineCache
    pauses: Mapping[JobId, Pause]
    starts: Mapping[JobId, Admit]
    sizes: Mapping[JobId, Resize]
    forecasts: Mapping[JobId, Forecast] | None = None

    @property
    def at_ms(self) -> Instant:
        """The instant of the last schedule."""
        return self.decided.at_ms

    @property
    def running(self) -> dict[JobId, Run]:
        """The runs that hold GPUs, by job."""
        return {run.job: run for run in self.state.runs if run.phase in ACTIVE}

    @property
    def waiting(self) -> dict[JobId, Pending]:
        """The decisions of waiting jobs, by job."""
        return {d.job: d for d in self.decided.decisions if isinstance(d, Pending)}


def at_rest(declared: Declared, state: ClusterState, now_ms: Instant, engine_cache: EngineCache | None = None) -> Rest:
    """Bring the cluster to rest at one instant. `engine_cache`: the engine's cache of a similar schedule.

    Cost: one schedule without a cache if `engine_cache` is empty, and a few with only the changes.
    """
    pauses: dict[JobId, Pause] = {}
    starts: dict[JobId, Admit] = {}
    sizes: dict[JobId, Resize] = {}
    decided, rest, engine_cache = Schedule(at_ms=now_ms), state, engine_cache or EngineCache()
    for decided, rest in come_to_rest(declared, state, now_ms, engine_cache):  # noqa: B007 - the last ones
        for decision in decided.decisions:
            match decision:
                case Admit():
                    starts[decision.job] = decision
                case Reclaim() | Preempt() | Displace() | Move():
                    pauses[decision.job] = decision
                case Resize():
                    sizes[decision.job] = decision
                case _:
                    pass
    return Rest(
        declared=declared,
        state=rest,
        decided=decided,
        engine_cache=engine_cache,
        pauses=pauses,
        starts=starts,
        sizes=sizes,
    )
