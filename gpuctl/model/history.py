"""What is kept of the past: what happened to runs, and what projects held."""

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
"""In place of a project: all of them together. A cluster's own row is there for all time that was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """A run is in another state than before, holds another number of GPUs, or waits for another reason.

    `at_ms`: when a cycle saw it. `gpu_milli`: what it holds from now on. `waited_ms`: how long it had waited, where it
    starts. `revision`: the commit that was in force for its project. `measured_milli_s`: what it held from then until
    its next event while its GPUs were measured, in milli-GPU-seconds; `busy_milli_s`: the part of that which worked.
    `sweep`: the sweep that the job is declared in; empty for other jobs, and once it is declared no more.
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
    """What more is known of a run since its last event, in milli-GPU-seconds."""

    job: JobId
    digest: RunDigest
    measured_milli_s: int
    busy_milli_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the repository's log says of a commit. Both texts are what others wrote."""

    revision: Revision
    author: str
    subject: str
    written_ms: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenUp:
    """From then on a commit was enforced."""

    revision: Revision
    at_ms: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How the prediction of a commit ended. `predicted` and `differences`: sentences; `why` it was not checked."""

    revision: Revision
    at_ms: Instant
    took_ms: DurationMs
    result: str
    why: str = ""
    predicted: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


Note: TypeAlias = Commit | TakenUp | Check
"""What is kept of commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A commit as far as it is known. `taken_ms` None: it was not taken up in the time that is kept."""

    revision: Revision
    author: str = ""
    subject: str = ""
    written_ms: Instant | None = None
    taken_ms: Instant | None = None
    check: Check | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a project held, wanted and was entitled to at an instant. `waiting`: jobs that wait for a place.

    `measured_milli`: what runs hold of which all GPUs are measured; `busy_milli`: the part of it that works;
    `idle_milli`: what runs hold that do nothing. `gpus_milli`: all healthy GPUs there are, in the row of ALL.
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
    """What of a run counts as an event when it changes."""

    state: JobState
    gpu_milli: GpuMilli
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The levels at an instant, what has happened since the last, and the marks of all runs that have not ended."""

    at_ms: Instant
    levels: Mapping[ProjectName, Amounts] = field(default_factory=dict)
    events: tuple[RunEvent, ...] = ()
    marks: Mapping[RunKey, Mark] = field(default_factory=dict)


class Grain(IntEnum):
    """How finely levels are kept: each change, or what they were over a minute or an hour."""

    RAW = 0
    MINUTE = 1
    HOUR = 2


class Period(NamedTuple):
    """What a project's levels add up to over the part of a period that was observed, in milli-GPU-seconds and job-ms.

    Sums, so that hours are the sum of their minutes. `observed_ms`: how long a leader watched.
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
    """What happened to a project's runs in a time. Waits are of the runs that were let go in it."""

    project: ProjectName
    starts: int = 0
    pauses: int = 0
    median_wait_ms: DurationMs | None = None
    long_wait_ms: DurationMs | None = None
    longest_wait_ms: DurationMs | None = None


class Step(NamedTuple):
    """What happened in a step of time to the runs of all projects, or of one."""

    at_ms: Instant
    starts: int
    waited_ms: DurationMs
    pauses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """A time in steps of one length. `periods`: sums of each step, of the projects that held most, and of all.

    `totals`: sums over all of the time, a row a project. `steps` are those in which something happened to the runs of
    `project`; None: of any. `tallies` of runs that wait long: nine in ten waits are shorter than `long_wait_ms`.
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
    """What a history is of: a job, a project, or with neither the cluster."""

    project: ProjectName | None = None
    job: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A part of the past, oldest first. `left_out`: older events of the same time that found no room.

    Events begin with the last one before `since_ms` of each run that was not over then. `changes`: the commits that the
    events name, and of a cluster's those that were taken up in that time.
    """

    subject: Subject
    since_ms: Instant
    until_ms: Instant
    grain: Grain = Grain.MINUTE
    events: tuple[RunEvent, ...] = ()
    periods: tuple[Period, ...] = ()
    left_out: int = 0
    changes: tuple[Change, ...] = ()
