"""A scenario as values. Instants are milliseconds after the scenario's 0s; given ones lie before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gpuctl.diag.span import SourceSpan
from gpuctl.model.decision import Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.source import SourceFile
from gpuctl.model.units import DurationMs, Instant

EPOCH_MS: Instant = 1_596_000_000_000
"""The instant that every scenario's 0s stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A name written in the scenario, and where."""

    name: str
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineDocument:
    """A document in the scenario: its identity, and a file in which it has the same line and column."""

    kind: str
    project: str
    name: str
    file: SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRun:
    """A job that runs since before the scenario begins, and its place."""

    job: JobId
    since_ms: Instant
    placement: Placement
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenQueued:
    """A job that has waited since before the scenario begins."""

    job: JobId
    since_ms: Instant
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenForeign:
    """GPUs of a node that other teams' pods hold."""

    node: NodeName
    gpus: int
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The state at 0s, besides the declarations."""

    documents: tuple[InlineDocument, ...] = ()
    nodes_ready: Mapping[NodeName, bool] = field(default_factory=dict)
    foreign: tuple[GivenForeign, ...] = ()
    running: tuple[GivenRun, ...] = ()
    queued: tuple[GivenQueued, ...] = ()
    usage_milli_hours: Mapping[ProjectName, int] = field(default_factory=dict)

    @property
    def since_ms(self) -> dict[JobId, Instant]:
        """When each given job began to wait, or to run."""
        waiting = {queued.job: queued.since_ms for queued in self.queued}
        return waiting | {run.job: run.since_ms for run in self.running}


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    """Documents are added, or replace those of the same name."""

    documents: tuple[InlineDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Jobs are removed from the declarations."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A running job's processes end."""

    job: JobId
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNode:
    """A node becomes unready, is cordoned, or is ready again."""

    node: NodeName
    ready: bool
    cordoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIdle:
    """A job's GPUs are reported unused since an instant; None: used again."""

    job: JobId
    since_ms: Instant | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStuck:
    """A job's pods that do not run yet wait for a reason of a kubelet; None: they start."""

    job: JobId
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLoad:
    """From now on all workers of a service together have this value of its metric, in thousandths."""

    job: JobId
    load_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetForeign:
    """From now on other teams' pods request this many GPUs of a node."""

    node: NodeName
    gpus: int


Happening: TypeAlias = Apply | Delete | Finish | SetNode | SetIdle | SetStuck | SetLoad | SetForeign


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of the scenario at an instant."""

    at_ms: Instant
    what: Happening
    span: SourceSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEviction:
    """An expected pause; `beneficiary` None: for any job."""

    job: JobId
    beneficiary: JobId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expectations at an instant; None is the end. The fields of a project or job are those of `expect`.

    `spans`: the place of each in the file, by ("project" or "job", name).
    """

    at_ms: Instant | None
    projects: Mapping[ProjectName, Mapping[str, Any]] = field(default_factory=dict)
    jobs: Mapping[JobId, Mapping[str, Any]] = field(default_factory=dict)
    evictions: tuple[WantedEviction, ...] | None = None
    spans: Mapping[tuple[str, str], SourceSpan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. `declarations` are paths as written, relative to the scenario's folder; events in order of time."""

    name: str
    why: str
    span: SourceSpan
    declarations: tuple[Named, ...] = ()
    given: Given = Given()
    durations: Mapping[JobId, DurationMs] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    until_ms: Instant | None = None
    expectations: tuple[Expectation, ...] = ()
