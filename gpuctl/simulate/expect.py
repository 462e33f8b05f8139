"""Compare a scenario's expectations with its report. Lists of names are compared as sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpuctl.diag.wording import duration
from gpuctl.model.ids import JobId
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.simulate.report import Checkpoint, JobRow, Outcome, ProjectRow, Transition, placement_form
from gpuctl.simulate.scenario import Expectation, WantedEviction


def gpus_form(gpu_milli: GpuMilli) -> int | float:
    """GPUs as JSON shows them: 4, 0.5. For output only: nothing is computed with it."""
    return gpu_milli // 1000 if gpu_milli % 1000 == 0 else gpu_milli / 1000


PROJECT_FACTS: dict[str, Callable[[ProjectRow], Any]] = {
    "allocated": lambda row: gpus_form(row.allocated_milli),
    "fairShare": lambda row: gpus_form(row.fair_share_milli),
    "quota": lambda row: gpus_form(row.quota_milli),
    "pending": lambda row: sorted(row.pending),
    "queued": lambda row: len(row.pending),
}
"""The facts that may be expected of a project, and how each is read from a checkpoint."""

JOB_FACTS: dict[str, Callable[[JobRow], Any]] = {
    "state": lambda row: row.state.value,
    "starts": lambda row: row.starts,
    "node": lambda row: ",".join(sorted({w.node for w in row.placement.workers})) if row.placement else None,
    "placement": lambda row: placement_form(row.placement),
    "workers": lambda row: len(row.placement.workers) if row.placement else 0,
    "reason": lambda row: row.reason,
    "pausedFor": lambda row: str(row.paused_for) if row.paused_for else None,
}
"""The facts that may be expected of a job. For a job that is not declared, each reads as null."""


def evaluate(
    expectations: Iterable[Expectation], at: Callable[[Instant | None], Checkpoint], transitions: Sequence[Transition]
) -> tuple[Outcome, ...]:
    """Evaluate each single expectation, in the order of the file. `at` returns the checkpoint of an instant."""
    outcomes: list[Outcome] = []
    for expectation in expectations:
        checkpoint = at(expectation.at_ms)
        when = "end" if expectation.at_ms is None else duration(expectation.at_ms)
        outcomes += _projects(expectation, checkpoint, when)
        outcomes += _jobs(expectation, checkpoint, when)
        if expectation.evictions is not None:
            past = [t for t in transitions if t.evicted and t.at_ms <= checkpoint.at_ms]
            outcomes.append(_evictions(expectation.evictions, past, when))
    return tuple(outcomes)


def _projects(expectation: Expectation, checkpoint: Checkpoint, when: str) -> Iterable[Outcome]:
    rows = {row.name: row for row in checkpoint.projects}
    for name, wanted in expectation.projects.items():
        row = rows.get(name)
        for field, want in wanted.items():
            got = PROJECT_FACTS[field](row) if row else None
            yield _outcome(when, f"projects.{name}.{field}", want, got)


def _jobs(expectation: Expectation, checkpoint: Checkpoint, when: str) -> Iterable[Outcome]:
    rows = {row.job: row for row in checkpoint.jobs}
    for job, wanted in expectation.jobs.items():
        row = rows.get(job)
        for field, want in wanted.items():
            yield _outcome(when, f"jobs.{job}.{field}", want, JOB_FACTS[field](row) if row else None)


def _outcome(when: str, path: str, want: Any, got: Any) -> Outcome:
    return Outcome(at=when, path=path, want=want, got=got, ok=want == got)


def _evictions(wanted: Sequence[WantedEviction], past: Sequence[Transition], when: str) -> Outcome:
    """Compare the complete list: there must be as many pauses as expected, each with its beneficiary if one is
    named."""
    left: list[tuple[JobId, JobId | None]] = [(t.job, t.paused_for) for t in past]
    unmet = 0
    for eviction in sorted(wanted, key=lambda e: e.beneficiary is None):
        found = next((p for p in left if p[0] == eviction.job and eviction.beneficiary in (None, p[1])), None)
        if found is None:
            unmet += 1
        else:
            left.remove(found)
    return Outcome(
        at=when,
        path="evictions",
        want=[_eviction(e.job, e.beneficiary) for e in wanted],
        got=[_eviction(t.job, t.paused_for) for t in past],
        ok=not unmet and not left,
    )


def _eviction(job: JobId, beneficiary: JobId | None) -> dict[str, str]:
    return {"job": str(job), "for": str(beneficiary)} if beneficiary else {"job": str(job)}
