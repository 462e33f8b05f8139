"""What is kept of the past: what happened to runs, and what projects held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

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
    starts. `revision`: the commit that was in force for its project.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a project held, wanted and was entitled to at an instant. `waiting`: jobs that wait for a place."""

    held_milli: GpuMilli = 0
    waiting_milli: GpuMilli = 0
    share_milli: GpuMilli = 0
    quota_milli: GpuMilli = 0
    running: int = 0
    waiting: int = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a history is of: a job, a project, or with neither the cluster."""

    project: ProjectName | None = None
    job: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A part of the past, oldest first. `left_out`: older events of the same time that found no room.

    Events begin with the last one before `since_ms` of each run that was not over then.
    """

    subject: Subject
    since_ms: Instant
    until_ms: Instant
    grain: Grain = Grain.MINUTE
    events: tuple[RunEvent, ...] = ()
    periods: tuple[Period, ...] = ()
    left_out: int = 0
