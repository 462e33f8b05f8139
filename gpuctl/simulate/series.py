"""GPUs by project over time, in equal steps: the data of a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.decision import JobState
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant
from gpuctl.simulate.report import SimulationReport

HOLDING = frozenset({JobState.STARTING, JobState.RUNNING})
"""States in which a job holds its GPUs."""

Steps = Mapping[ProjectName, Sequence[tuple[Instant, GpuMilli]]]
"""For each project the amounts that it held, each with its first instant, in order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Means over equal steps of time. `held_milli`: for each project one mean a step; the first step begins at
    `from_ms`."""

    from_ms: Instant
    step_ms: DurationMs
    capacity_milli: GpuMilli
    held_milli: Mapping[ProjectName, tuple[GpuMilli, ...]]


def series(steps: Steps, window: tuple[Instant, Instant], capacity_milli: GpuMilli, count: int) -> Series:
    """Divide a window into `count` steps, or fewer where it is short: a step is whole milliseconds."""
    from_ms, until_ms = window
    step_ms = max(1, -(-(until_ms - from_ms) // count))
    count = max(1, -(-(until_ms - from_ms) // step_ms))
    return Series(
        from_ms=from_ms,
        step_ms=step_ms,
        capacity_milli=capacity_milli,
        held_milli={project: _means(changes, from_ms, step_ms, count) for project, changes in sorted(steps.items())},
    )


def _means(
    changes: Sequence[tuple[Instant, GpuMilli]], from_ms: Instant, step_ms: DurationMs, count: int
) -> tuple[GpuMilli, ...]:
    """Each step's integral, divided by its length and rounded."""
    sums = [0] * count
    end_ms = from_ms + count * step_ms
    for index, (at_ms, milli) in enumerate(changes):
        begin = max(at_ms, from_ms)
        until = min(end_ms, changes[index + 1][0] if index + 1 < len(changes) else end_ms)
        while begin < until and milli:
            step = (begin - from_ms) // step_ms
            stop = min(until, from_ms + (step + 1) * step_ms)
            sums[step] += milli * (stop - begin)
            begin = stop
    return tuple((total + step_ms // 2) // step_ms for total in sums)


def series_of(report: SimulationReport, count: int) -> Series:
    """The series of a simulation: the GPUs that its jobs held from one change of state to the next."""
    size = {row.job: row.gpu_milli for checkpoint in report.checkpoints for row in checkpoint.jobs}
    end_ms = max((checkpoint.at_ms for checkpoint in report.checkpoints), default=0)
    steps: dict[ProjectName, list[tuple[Instant, GpuMilli]]] = {
        row.name: [] for checkpoint in report.checkpoints for row in checkpoint.projects
    }
    held = dict.fromkeys(steps, 0)
    for transition in report.transitions:
        gained = (transition.after in HOLDING) - (transition.before in HOLDING)
        if gained and transition.job in size:
            project = transition.job.project
            held[project] = held.get(project, 0) + gained * size[transition.job]
            steps.setdefault(project, []).append((transition.at_ms, held[project]))
    nodes = report.checkpoints[-1].nodes if report.checkpoints else ()
    capacity_milli = WHOLE_GPU * sum(node.gpus for node in nodes)
    return series(steps, (0, max(1, end_ms)), capacity_milli, count)
