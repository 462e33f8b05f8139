"""Why a run runs now, from the schedule's amounts: the reason on record is that of its start."""

from __future__ import annotations

from gpuctl.engine.shares.entitlement import reason_now
from gpuctl.explain.effect import domains_of
from gpuctl.model.decision import Reason, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.ids import DomainName, JobId, NodeName
from gpuctl.model.state import ACTIVE, ClusterState, Run
from gpuctl.model.units import GpuMilli


def reason_of_running(
    declared: Declared, state: ClusterState, schedule: Schedule, job: JobId, recorded: Reason
) -> Reason:
    """The reason of a running job, as things stand after a schedule of this state. Cost: O(runs and nodes)."""
    runs = {run.job: run for run in state.runs if run.phase in ACTIVE and run.job.project == job.project}
    domain_of = domains_of(declared, state.nodes)
    domain = _domain(runs[job], domain_of) if job in runs else None
    row = next((row for row in schedule.shares if (row.project, row.domain) == (job.project, domain)), None)
    if row is None:
        return recorded
    held = row.allocated_milli
    fixed = {each.id for each in declared.jobs if each.id.project == job.project and not each.preemptible}
    if job in fixed:
        held = sum(_held(run) for run in runs.values() if run.job in fixed and _domain(run, domain_of) == domain)
    return reason_now(recorded, job.project, held, row.guarantee_milli, row.entitled_milli)


def _domain(run: Run, domain_of: dict[NodeName, DomainName]) -> DomainName | None:
    workers = run.placement.workers if run.placement is not None else ()
    return next((domain_of[worker.node] for worker in workers if worker.node in domain_of), None)


def _held(run: Run) -> GpuMilli:
    return run.gpu_milli * (len(run.placement.workers) - len(run.ended)) if run.placement is not None else 0
