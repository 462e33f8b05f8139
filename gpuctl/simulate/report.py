"""The SimulationReport: checkpoints, transitions, expectations. Fields of its JSON form are only ever added.

Instants are milliseconds after the scenario's 0s. A checkpoint is what was observed then, not what was decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuctl.model.decision import JobState, Placement
from gpuctl.model.ids import JobId, NodeName, ProjectName
from gpuctl.model.units import WHOLE_GPU, DurationMs, GpuMilli, Instant

API_VERSION = "gpuctl.dev/v1"
QUEUED_STATES = frozenset({JobState.PENDING, JobState.PREEMPTED})
"""States in which a job waits to be started by the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRow:
    """A project at one time. `pending` are its waiting jobs, longest waiting first."""

    name: ProjectName
    quota_milli: GpuMilli
    fair_share_milli: GpuMilli
    allocated_milli: GpuMilli
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job at one time. `reason` is a catalogue code and `message` its text; `gpu_milli` is of all workers together.

    `queued_ms`: how long it has waited so far, 0 if it does not wait.
    """

    job: JobId
    state: JobState
    reason: str
    message: str
    gpu_milli: GpuMilli
    placement: Placement | None
    starts: int
    queued_ms: DurationMs
    paused_for: JobId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node at one time: its healthy devices, and whether it takes jobs."""

    name: NodeName
    gpus: int
    usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The cluster at one time: at rest after an event, at a time of an expectation, or at the end.

    `begun_ms` is the instant of the event.
    """

    at_ms: Instant
    begun_ms: Instant
    label: str
    revision: str
    nodes: tuple[NodeRow, ...]
    projects: tuple[ProjectRow, ...]
    jobs: tuple[JobRow, ...]
    free_milli: GpuMilli


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A job's change of state. `before` None: it is new; `after` None: it is gone. `paused_for`: set on a pause.

    `lost_ms`: the work that it must repeat after that pause, on `lost_milli` GPUs; None: not known.
    """

    at_ms: Instant
    job: JobId
    before: JobState | None
    after: JobState | None
    reason: str = ""
    message: str = ""
    nodes: tuple[str, ...] = ()
    paused_for: JobId | None = None
    evicted: bool = False
    lost_ms: DurationMs | None = None
    lost_milli: GpuMilli = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One expectation and what was found. `want` and `got` are JSON values in the form of the scenario file."""

    at: str
    path: str
    want: Any
    got: Any
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """The report of one scenario. `stable`: the cluster came to rest within the bound of cycles."""

    name: str
    why: str
    checkpoints: tuple[Checkpoint, ...]
    transitions: tuple[Transition, ...]
    outcomes: tuple[Outcome, ...]
    cycles: int
    stable: bool = True

    @property
    def lost_gpu_ms(self) -> int:
        """The work that pauses cost, in milliseconds of a GPU, as far as jobs declare their checkpoint interval."""
        return sum((each.lost_ms or 0) * each.lost_milli for each in self.transitions) // WHOLE_GPU

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The expectations that were not met."""
        return tuple(outcome for outcome in self.outcomes if not outcome.ok)

    @property
    def ok(self) -> bool:
        """Whether every expectation was met and the cluster came to rest."""
        return self.stable and not self.failed


def document(report: SimulationReport) -> dict[str, Any]:
    """The report's JSON form."""
    starts = {row.job: row.starts for checkpoint in report.checkpoints for row in checkpoint.jobs}
    return {
        "apiVersion": API_VERSION,
        "kind": "SimulationReport",
        "metadata": {"name": report.name},
        "why": report.why,
        "checkpoints": [_checkpoint(checkpoint) for checkpoint in report.checkpoints],
        "transitions": [_transition(transition) for transition in report.transitions],
        "expectations": [
            {"at": o.at, "path": o.path, "want": o.want, "got": o.got, "ok": o.ok} for o in report.outcomes
        ],
        "summary": {
            "ok": report.ok,
            "stable": report.stable,
            "expectations": len(report.outcomes),
            "failed": len(report.failed),
            "cycles": report.cycles,
            "endMs": report.checkpoints[-1].at_ms if report.checkpoints else 0,
            "starts": sum(starts.values()),
            "evictions": sum(transition.evicted for transition in report.transitions),
            "lostGpuMs": report.lost_gpu_ms,
        },
    }


def placement_form(placement: Placement | None) -> list[dict[str, Any]]:
    """A placement as `[{node, gpus}]`, one for each worker; empty for none."""
    workers = placement.workers if placement else ()
    return [{"node": worker.node, "gpus": list(worker.gpus)} for worker in workers]


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "atMs": checkpoint.at_ms,
        "begunMs": checkpoint.begun_ms,
        "label": checkpoint.label,
        "revision": checkpoint.revision,
        "projects": [
            {
                "name": row.name,
                "quotaGpuMilli": row.quota_milli,
                "fairShareGpuMilli": row.fair_share_milli,
                "allocatedGpuMilli": row.allocated_milli,
                "pending": list(row.pending),
            }
            for row in checkpoint.projects
        ],
        "jobs": [_job(row) for row in checkpoint.jobs],
        "nodes": [{"name": node.name, "gpus": node.gpus, "usable": node.usable} for node in checkpoint.nodes],
        "freeGpuMilli": checkpoint.free_milli,
    }


def _job(row: JobRow) -> dict[str, Any]:
    return {
        "name": row.job.name,
        "project": row.job.project,
        "state": row.state.value,
        "reason": row.reason,
        "message": row.message,
        "gpuMilli": row.gpu_milli,
        "placement": placement_form(row.placement),
        "starts": row.starts,
        "queuedMs": row.queued_ms,
        "pausedFor": str(row.paused_for) if row.paused_for else None,
    }


def _transition(transition: Transition) -> dict[str, Any]:
    return {
        "atMs": transition.at_ms,
        "job": str(transition.job),
        "from": transition.before.value if transition.before else None,
        "to": transition.after.value if transition.after else None,
        "reason": transition.reason,
        "message": transition.message,
        "node": ",".join(dict.fromkeys(transition.nodes)) or None,
        "for": str(transition.paused_for) if transition.paused_for else None,
        "evicted": transition.evicted,
        "lostMs": transition.lost_ms,
    }
