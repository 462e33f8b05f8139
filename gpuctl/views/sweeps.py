"""Sweeps as people see them: a row in a list, and a table of their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gpuctl.diag.escapes import printable
from gpuctl.model.decision import JobState, Reason
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.units import GpuMilli, Instant, format_gpus
from gpuctl.model.utilisation import RunUse
from gpuctl.views.jobs import JobView
from gpuctl.views.progress import percent_text
from gpuctl.views.tables import age, table

_TOLD_FIRST = (
    JobState.RUNNING, JobState.STARTING, JobState.STOPPING, JobState.PREEMPTED, JobState.PENDING, JobState.SUSPENDED,
    JobState.SCALED_TO_ZERO,
    JobState.FAILED, JobState.TIMED_OUT, JobState.DELETED, JobState.SUCCEEDED,
)  # fmt: skip
_COLUMNS = ("NAME", "STATUS", "SINCE", "NODE", "STARTS", "VALUES", "REASON")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """A sweep by its jobs that have an object, in the order of their indices. Never empty."""

    jobs: tuple[JobView, ...]

    @property
    def id(self) -> JobId:
        """Its project and its name."""
        return JobId(self.jobs[0].id.project, self.jobs[0].sweep)

    @property
    def counts(self) -> Mapping[JobState, int]:
        """How many of its jobs are in each state, without empty states."""
        found = Counter(view.state for view in self.jobs)
        return {state: found[state] for state in _TOLD_FIRST if found[state]}

    @property
    def status(self) -> str:
        """The first state of its jobs, with how many are in it: `Running 3/8`; and how many failed."""
        (state, count), *_ = self.counts.items()
        failed = 0 if state is JobState.FAILED else self.counts.get(JobState.FAILED, 0)
        return f"{state.value} {count}/{len(self.jobs)}" + (f", {failed} Failed" if failed else "")

    @property
    def counted(self) -> str:
        """All states: `3 Running, 4 Pending, 1 Succeeded`."""
        return ", ".join(f"{count} {state.value}" for state, count in self.counts.items())

    @property
    def newest(self) -> JobView:
        """The job that started last."""
        return max(self.jobs, key=lambda view: view.since_ms)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The nodes that its jobs run on."""
        return tuple(dict.fromkeys(node for view in self.jobs for node in view.nodes))

    @property
    def gpu_milli(self) -> GpuMilli:
        """The GPUs of all its jobs together, whether they run or wait."""
        return sum(view.gpu_milli for view in self.jobs)

    @property
    def type_name(self) -> str:
        """The type of its jobs in Run:ai's words."""
        return self.jobs[0].type_name

    @property
    def since_ms(self) -> Instant:
        """When the job that started last did so."""
        return self.newest.since_ms

    @property
    def use(self) -> RunUse | None:
        """The use of its measured jobs' GPUs together; None if none is measured. A sweep as a whole is never idle."""
        uses = [view.use for view in self.jobs if view.use is not None]
        if not uses:
            return None
        return RunUse(
            held_milli=sum(use.held_milli for use in uses),
            busy_milli=sum(use.busy_milli for use in uses),
            used_bytes=sum(use.used_bytes for use in uses),
            total_bytes=sum(use.total_bytes for use in uses),
        )


Row: TypeAlias = JobView | SweepView


def folded(views: Iterable[JobView]) -> list[Row]:
    """The jobs as rows of a list, with each sweep once, at the place of its first job."""
    of_sweeps: dict[JobId, list[JobView]] = {}
    found: list[JobView | JobId] = []
    for view in views:
        if not view.sweep:
            found.append(view)
            continue
        name = JobId(view.id.project, view.sweep)
        if name not in of_sweeps:
            found.append(name)
        of_sweeps.setdefault(name, []).append(view)
    return [sweep_of(of_sweeps[each]) if isinstance(each, JobId) else each for each in found]


def jobs_of(row: Row) -> tuple[JobView, ...]:
    """The jobs of a row: one, or those of a sweep by their indices."""
    return row.jobs if isinstance(row, SweepView) else (row,)


def reason_of(row: Row) -> Reason | None:
    """The reason of a row's first job: for a sweep, of the job with the next turn among those that wait."""
    return jobs_of(row)[0].reason


def queued_ms(row: Row) -> Instant:
    """Since when a row's jobs wait: the longest wait."""
    return min(view.run.queued_at_ms for view in jobs_of(row))


def idle_text(row: Row, now_ms: Instant) -> str:
    """How long a row's GPUs have been idle; for a sweep, of the job that is idle longest, with the number of idle
    jobs."""
    uses = [view.use for view in jobs_of(row)]
    since_ms = [use.idle_since_ms for use in uses if use is not None and use.idle_since_ms is not None]
    if not since_ms:
        return "-"
    longest = age(now_ms - min(since_ms))
    return longest if isinstance(row, JobView) else f"{longest} ({len(since_ms)} of {len(uses)})"


def progress_of(row: Row) -> str:
    """The progress that a job reports; a dash for a sweep, whose jobs report it one by one."""
    return percent_text(row) if isinstance(row, JobView) else "-"


def sweep_of(views: Iterable[JobView]) -> SweepView:
    """A sweep of its jobs."""
    return SweepView(jobs=tuple(sorted(views, key=_place)))


def _place(view: JobView) -> tuple[int, tuple[tuple[int, str], ...], JobId]:
    """Numbers in their order; else by values, the shorter first, so that 4 comes before 16."""
    number = int(view.index) if view.index.isdecimal() and not view.values and len(view.index) < 6 else 0
    return number, tuple((len(value), value) for value in view.values.values()), view.id


def values_text(view: JobView) -> str:
    """The variables that the job alone has: `LR=0.1 DEPTH=4`; its number if it has none."""
    return " ".join(f"{name}={value}" for name, value in view.values.items()) or view.index or "-"


def sweep_text(sweep: SweepView, now_ms: Instant) -> str:
    """One sweep in full."""
    first = sweep.jobs[0]
    facts = [
        ("NAME", sweep.id.name),
        ("PROJECT", sweep.id.project),
        ("TYPE", first.type_name),
        ("STATUS", sweep.status),
        ("JOBS", sweep.counted),
        ("NAMESPACE", first.ref.namespace),
        ("IMAGE", first.image),
        ("GPUs", format_gpus(sweep.gpu_milli)),
        ("NODE", ", ".join(sweep.nodes) or "-"),
    ]
    width = max(len(name) for name, _ in facts) + 2
    lines = "".join(f"{name + ':':<{width}}{printable(value)}\n" for name, value in facts)
    return f"{lines}\nJobs:\n{_job_table(sweep.jobs, now_ms)}"


def _job_table(views: Sequence[JobView], now_ms: Instant) -> str:
    rows = [
        (
            view.id.name,
            view.status,
            age(now_ms - view.since_ms),
            ", ".join(view.nodes) or "-",
            str(view.run.starts),
            values_text(view),
            view.why,
        )
        for view in views
    ]
    return table(_COLUMNS, rows)


def sweep_form(sweep: SweepView, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One sweep as JSON and YAML show it; `jobs`: the forms of its jobs."""
    counts = {state.value: count for state, count in sweep.counts.items()}
    return {"name": sweep.id.name, "project": sweep.id.project, "counts": counts, "jobs": list(jobs)}
