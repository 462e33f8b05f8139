"""What a replay came to: one set of figures a mode, and its JSON form. Fields of that form are only ever added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.model.ids import ProjectName
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant
from gpuctl.simulate.meter import Meter, Short
from gpuctl.simulate.modes import ModeName, mode_of
from gpuctl.simulate.replay import Pace, Replay
from gpuctl.simulate.report import API_VERSION
from gpuctl.simulate.series import Series, series
from gpuctl.simulate.workload import Workload

STEPS = 96
"""Steps of time in a report's series."""

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One mode's. `wait` is all the time that a job was there and did not run; jobs that never ended are not in it.

    `displaced`: work done since their last start by jobs that were paused; `lost`: what of it was done again; `wasted`:
    that, and the GPU time that they held while they left: all that pausing costs. These, `unfair` and `below_quota`
    (see `meter.Short`) are parts per million of the work of all jobs, `used` of all GPU time of the window.
    """

    mode: ModeName
    ended: int
    unfinished: int
    mean_wait_ms: DurationMs
    p95_wait_ms: DurationMs
    max_wait_ms: DurationMs
    pauses: int
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Several modes over the same jobs on the same nodes. The window is what integrals are over.

    `quotas_from` tells where quotas are from.
    """

    name: str
    jobs: int
    work: int
    layout: str
    capacity_milli: GpuMilli
    window: tuple[Instant, Instant]
    pace: Pace
    quotas: Mapping[ProjectName, GpuMilli]
    modes: tuple[Figures, ...]
    quotas_from: str = ""

    def wait_ratio_milli(self, figures: Figures) -> int | None:
        """A mode's mean wait in thousandths of the floor's; None where the floor is not among the modes, or 0."""
        floor = next((f.mean_wait_ms for f in self.modes if f.mode is ModeName.FLOOR), 0)
        return figures.mean_wait_ms * 1000 // floor if floor else None


def replay(workload: Workload, mode: ModeName, pace: Pace, window: tuple[Instant, Instant]) -> Figures:
    """Replay a workload in one mode, and measure it."""
    meter = Meter(workload.quotas, workload.capacity_milli, window, pace.stop_ms)
    course = Replay(workload, mode_of(mode, workload), pace, meter)
    came = course.run()
    projects = meter.close()
    work = max(1, sum(job.work_ms for job, _ in workload.jobs))
    waits = sorted(came.waits_ms) or [0]
    span = workload.capacity_milli * (window[1] - window[0])
    return Figures(
        mode=mode,
        ended=len(came.waits_ms),
        unfinished=course.unfinished,
        mean_wait_ms=sum(waits) // len(waits),
        p95_wait_ms=waits[len(waits) * 95 // 100],
        max_wait_ms=waits[-1],
        pauses=came.pauses,
        displaced_ppm=came.displaced * MILLION // work,
        lost_ppm=came.lost * MILLION // work,
        wasted_ppm=(came.lost + came.leaving) * MILLION // work,
        unfair_ppm=sum(short.unfair for short in projects.values()) * MILLION // work,
        below_quota_ppm=sum(short.below_quota for short in projects.values()) * MILLION // work,
        used_ppm=meter.used * MILLION // max(1, span),
        violations=sum(short.violations for short in projects.values()),
        violation_ms=sum(short.violation_ms for short in projects.values()),
        longest_ms=max((short.longest_ms for short in projects.values()), default=0),
        instants=came.instants,
        end_ms=came.end_ms,
        projects=projects,
        series=series(meter.steps, window, workload.capacity_milli, STEPS),
    )


def replay_all(
    workload: Workload, layout: str, modes: Sequence[ModeName], pace: Pace, window: tuple[Instant, Instant]
) -> ReplayReport:
    """The same jobs in each of the modes."""
    return ReplayReport(
        name=workload.declared.cluster.name,
        jobs=len(workload.jobs),
        work=sum(job.work_ms for job, _ in workload.jobs),
        layout=layout,
        capacity_milli=workload.capacity_milli,
        window=window,
        pace=pace,
        quotas=workload.quotas,
        modes=tuple(replay(workload, mode, pace, window) for mode in modes),
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
        "stopMs": report.pace.stop_ms,
        "checkpointMs": report.pace.checkpoint_ms,
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
