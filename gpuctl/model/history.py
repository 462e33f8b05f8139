"""The record of the past: what happened to runs, and what projects held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from gpuctl.model.decision import JobState, Reason
from gpuctl.model.ids import NO_REVISION, JobId, NodeName, ProjectName, Revision, RunDigest, RunKey
from gpuctl.model.units import DurationMs, GpuMilli, Instant

MINUTE_MS: DurationMs = 60_000
HOUR_MS: DurationMs = 3_600_000
ALL = ProjectName("")
"""Stands for all projects together. A cluster's own row exists for all observed time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """A run has changed its state, the number of GPUs that it holds, or the reason why it waits.

    - `at_ms`: when a cycle saw it.
    - `gpu_milli`: the GPUs that it holds from then on.
    - `waited_ms`: how long it had waited, if it starts.
    - `revision`: the commit in force for its project.
    - `measured_milli_s`: what it held until its next event while its GPUs were measured, in milli-GPU-seconds;
      `busy_milli_s`: the part of that which worked.
    - `sweep`: the sweep that the job belongs to; "" for other jobs, and once the job is no longer declared.
    """

    at_ms: Instant
    job: JobId
    digest: RunDigest
    state: JobState
    gpu_milli: GpuMilli = 0
    nodes: tuple[NodeName, ...] = ()
    reason: Reason | None = None
    paused_for: JobId | None = None
    waited_ms: DurationMs | None = None
    revision: Revision = NO_REVISION
    measured_milli_s: int = 0
    busy_milli_s: int = 0
    sweep: str = ""


class Work(NamedTuple):
    """The measurements of a run since its last event, in milli-GPU-seconds."""

    job: JobId
    digest: RunDigest
    measured_milli_s: int
    busy_milli_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit as the repository's log has it. Both texts are written by others."""

    revision: Revision
    author: str
    subject: str
    written_ms: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenUp:
    """The time from which a commit was enforced."""

    revision: Revision
    at_ms: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How the prediction for a commit ended. `predicted`, `differences`: sentences; `why`: why it was not checked."""

    revision: Revision
    at_ms: Instant
    took_ms: DurationMs
    result: str
    why: str = ""
    predicted: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


Note: TypeAlias = Commit | TakenUp | Check
"""The records that are kept of commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """All that is known of a commit. `taken_ms` None: it was not enforced in the time that is kept."""

    revision: Revision
    author: str = ""
    subject: str = ""
    written_ms: Instant | None = None
    taken_ms: Instant | None = None
    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a project held, wanted and was entitled to at an instant. `waiting`: jobs that wait for a place.

    `measured_milli`: the GPUs of runs whose GPUs are all measured; `busy_milli`: the part of them that works;
    `idle_milli`: the GPUs of idle runs. `gpus_milli`: all healthy GPUs, in the row of ALL.
    """

    held_milli: GpuMilli = 0
    waiting_milli: GpuMilli = 0
    share_milli: GpuMilli = 0
    quota_milli: GpuMilli = 0
    running: int = 0
    waiting: int = 0
    gpus_milli: GpuMilli = 0
    idle_milli: GpuMilli = 0
    measured_milli: GpuMilli = 0
    busy_milli: GpuMilli = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The facts of a run whose change counts as an event."""

    state: JobState
    gpu_milli: GpuMilli
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The levels at an instant, the events since the last one, and the marks of all runs that have not ended."""

    at_ms: Instant
    levels: Mapping[ProjectName, Amounts] = field(default_factory=dict)
    events: tuple[RunEvent, ...] = ()
    marks: Mapping[RunKey, Mark] = field(default_factory=dict)


class Grain(IntEnum):
    """How finely levels are kept: each change, or sums over a minute or an hour."""

    RAW = 0
    MINUTE = 1
    HOUR = 2


class Period(NamedTuple):
    """The sums of a project's levels over the observed part of a period, in milli-GPU-seconds and job-ms.

    Sums, so that an hour is the sum of its minutes. `observed_ms`: how long a leader watched.
    """

    at_ms: Instant
    project: ProjectName
    observed_ms: DurationMs
    held_milli_s: int = 0
    waiting_milli_s: int = 0
    share_milli_s: int = 0
    quota_milli_s: int = 0
    running_ms: int = 0
    waiting_ms: int = 0
    gpus_milli_s: int = 0
    idle_milli_s: int = 0
    measured_milli_s: int = 0
    busy_milli_s: int = 0


class Tally(NamedTuple):
    """What happened to a project's runs in a time. Waits are those of the runs that were released in it."""

    project: ProjectName
    starts: int = 0
    pauses: int = 0
    median_wait_ms: DurationMs | None = None
    long_wait_ms: DurationMs | None = None
    longest_wait_ms: DurationMs | None = None


class Step(NamedTuple):
    """What happened in a step of time to the runs of one project or of all."""

    at_ms: Instant
    starts: int
    waited_ms: DurationMs
    pauses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """A time in steps of equal length. `periods`: the sums of each step, for the projects that held most and for all.

    `totals`: the sums over the whole time, one row for each project. `steps`: those in which something happened to the
    runs of `project`; None: of any project. `tallies`: one for each project; nine in ten waits are shorter than
    `long_wait_ms`.
    """

    since_ms: Instant
    until_ms: Instant
    step_ms: DurationMs
    project: ProjectName | None = None
    periods: tuple[Period, ...] = ()
    totals: tuple[Period, ...] = ()
    tallies: tuple[Tally, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a history is about: a job, a project, or, with neither, the cluster."""

    project: ProjectName | None = None
    job: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A part of the past, oldest first. `left_out`: how many older events of the same time did not fit.

    The events begin with the last one before `since_ms` of each run that had not ended by then. `changes`: the commits
    that the events name; for a cluster, the commits taken up in that time.
    """

    subject: Subject
    since_ms: Instant
    until_ms: Instant
    grain: Grain = Grain.MINUTE
    events: tuple[RunEvent, ...] = ()
    periods: tuple[Period, ...] = ()
    left_out: int = 0
    changes: tuple[Change, ...] = ()
