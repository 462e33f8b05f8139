"""The report of a replay: figures for each mode, and the JSON form. Fields of that form are only ever added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.model.ids import ProjectName
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant
from gpuctl.simulate.meter import Meter, Short
from gpuctl.simulate.modes import ModeName, mode_of
from gpuctl.simulate.replay import YOUNG_MS, PauseCost, Replay
from gpuctl.simulate.report import API_VERSION
from gpuctl.simulate.series import Series, series
from gpuctl.simulate.workload import Workload

STEPS = 96
"""Steps of time in a report's series."""

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one mode. Waits are of ended jobs: the time since submission in which a job did not run.

    `displaced`: work that paused jobs had done since their last start; `lost`: the part of it that was repeated;
    `wasted`: `lost` and the GPU time that they held while stopping, which is everything that pauses cost. These,
    `unfair` and `below_quota` (see `meter.Short`) are parts per million of the work of all jobs; `used` of the window's
    GPU time. `reclaims`, `young_victims`, `most_starts`: see `replay.ReplayResult`.
    """

    mode: ModeName
    ended: int
    unfinished: int
    mean_wait_ms: DurationMs
    p95_wait_ms: DurationMs
    max_wait_ms: DurationMs
    pauses: int
    reclaims: int
    young_victims: int
    most_starts: int
    displaced_ppm: int
    lost_ppm: int
    wasted_ppm: int
    unfair_ppm: int
    below_quota_ppm: int
    used_ppm: int
    violations: int
    violation_ms: DurationMs
    longest_ms: DurationMs
    instants: int
    end_ms: Instant
    projects: Mapping[ProjectName, Short]
    series: Series

    @property
    def young_ppm(self) -> int | None:
        """Young victims in parts per million of the reclaims; None where nothing was reclaimed."""
        return self.young_victims * MILLION // self.reclaims if self.reclaims else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Several modes with the same jobs on the same nodes. `window`: the time that the integrals cover. `quotas_from`:
    where the quotas come from."""

    name: str
    jobs: int
    work: int
    layout: str
    capacity_milli: GpuMilli
    window: tuple[Instant, Instant]
    pause_cost: PauseCost
    quotas: Mapping[ProjectName, GpuMilli]
    modes: tuple[Figures, ...]
    quotas_from: str = ""

    def wait_ratio_milli(self, figures: Figures) -> int | None:
        """A mode's mean wait in thousandths of the floor's; None where the floor's is unknown or 0."""
        floor = next((f.mean_wait_ms for f in self.modes if f.mode is ModeName.FLOOR), 0)
        return figures.mean_wait_ms * 1000 // floor if floor else None


def replay(workload: Workload, mode: ModeName, pause_cost: PauseCost, window: tuple[Instant, Instant]) -> Figures:
    """Replay a workload in one mode, and measure it."""
    meter = Meter(workload.quotas, workload.capacity_milli, window, pause_cost.stop_ms)
    replayed = Replay(workload, mode_of(mode, workload), pause_cost, meter)
    result = replayed.run()
    projects = meter.close()
    work = max(1, sum(job.work_ms for job, _ in workload.jobs))
    waits = sorted(result.waits_ms) or [0]
    span = workload.capacity_milli * (window[1] - window[0])
    return Figures(
        mode=mode,
        ended=len(result.waits_ms),
        unfinished=replayed.unfinished,
        mean_wait_ms=sum(waits) // len(waits),
        p95_wait_ms=waits[len(waits) * 95 // 100],
        max_wait_ms=waits[-1],
        pauses=result.pauses,
        reclaims=result.reclaims,
        young_victims=result.young_victims,
        most_starts=result.most_starts,
        displaced_ppm=result.displaced * MILLION // work,
        lost_ppm=result.lost * MILLION // work,
        wasted_ppm=(result.lost + result.leaving) * MILLION // work,
        unfair_ppm=sum(short.unfair for short in projects.values()) * MILLION // work,
        below_quota_ppm=sum(short.below_quota for short in projects.values()) * MILLION // work,
        used_ppm=meter.used * MILLION // max(1, span),
        violations=sum(short.violations for short in projects.values()),
        violation_ms=sum(short.violation_ms for short in projects.values()),
        longest_ms=max((short.longest_ms for short in projects.values()), default=0),
        instants=result.instants,
        end_ms=result.end_ms,
        projects=projects,
        series=series(meter.steps, window, workload.capacity_milli, STEPS),
    )


def replay_all(
    workload: Workload, layout: str, modes: Sequence[ModeName], pause_cost: PauseCost, window: tuple[Instant, Instant]
) -> ReplayReport:
    """Replay the same jobs in each mode."""
    return ReplayReport(
        name=workload.declared.cluster.name,
        jobs=len(workload.jobs),
        work=sum(job.work_ms for job, _ in workload.jobs),
        layout=layout,
        capacity_milli=workload.capacity_milli,
        window=window,
        pause_cost=pause_cost,
        quotas=workload.quotas,
        modes=tuple(replay(workload, mode, pause_cost, window) for mode in modes),
    )


def document(report: ReplayReport) -> dict[str, Any]:
    """The report's JSON form. Work is in GPU-milliseconds, instants are since the Unix epoch."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplayReport",
        "metadata": {"name": report.name},
        "jobs": report.jobs,
        "workGpuMs": report.work // WHOLE_GPU,
        "nodes": report.layout,
        "capacityGpuMilli": report.capacity_milli,
        "fromMs": report.window[0],
        "untilMs": report.window[1],
        "stopMs": report.pause_cost.stop_ms,
        "checkpointMs": report.pause_cost.checkpoint_ms,
        "youngMs": YOUNG_MS,
        "quotasFrom": report.quotas_from,
        "modes": [_mode(report, figures) for figures in report.modes],
    }


def _mode(report: ReplayReport, figures: Figures) -> dict[str, Any]:
    return {
        "mode": figures.mode.value,
        "ended": figures.ended,
        "unfinished": figures.unfinished,
        "meanWaitMs": figures.mean_wait_ms,
        "p95WaitMs": figures.p95_wait_ms,
        "maxWaitMs": figures.max_wait_ms,
        "waitOfFloorMilli": report.wait_ratio_milli(figures),
        "pauses": figures.pauses,
        "reclaims": figures.reclaims,
        "youngVictims": figures.young_victims,
        "youngVictimsPpm": figures.young_ppm,
        "mostStarts": figures.most_starts,
        "displacedPpm": figures.displaced_ppm,
        "lostPpm": figures.lost_ppm,
        "wastedPpm": figures.wasted_ppm,
        "unfairPpm": figures.unfair_ppm,
        "belowQuotaPpm": figures.below_quota_ppm,
        "usedPpm": figures.used_ppm,
        "violations": figures.violations,
        "violationMs": figures.violation_ms,
        "longestShortMs": figures.longest_ms,
        "instants": figures.instants,
        "endMs": figures.end_ms,
        "stepMs": figures.series.step_ms,
        "projects": [
            {
                "name": project,
                "quotaGpuMilli": report.quotas[project],
                "unfairGpuMs": short.unfair // WHOLE_GPU,
                "belowQuotaGpuMs": short.below_quota // WHOLE_GPU,
                "violations": short.violations,
                "violationMs": short.violation_ms,
                "longestShortMs": short.longest_ms,
                "heldGpuMilli": list(figures.series.held_milli[project]),
            }
            for project, short in figures.projects.items()
        ],
    }
