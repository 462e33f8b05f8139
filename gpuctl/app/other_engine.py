"""Declarations for a cluster where another engine decides: its objects, and observations in place of decisions."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.app.ports import Cluster
from gpuctl.app.whose import ledgers_on
from gpuctl.engine import reasons
from gpuctl.engine.jobs.runs import NOWHERE, by_itself, record_of
from gpuctl.k8s import kinds
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.model.decision import Decision, Keep, Pending, RunRecord, Schedule
from gpuctl.model.declared import Declared
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifests
from gpuctl.model.state import ACTIVE, ClusterState, Run
from gpuctl.model.units import Instant
from gpuctl.render import RenderCache, render
from gpuctl.targets import Engine, TargetObjects, rendered_for


def target_objects(declared: Declared, engine: Engine) -> TargetObjects:
    """The objects of all declarations, for another engine to decide about."""
    return rendered_for(engine, declared, waiting_manifests)


def waiting_manifests(declared: Declared, cache: RenderCache | None = None) -> Manifests:
    """The objects of all declarations, with no job started. `cache`: of nearly the same declarations."""
    decisions = tuple(
        Pending(job=job.id, reason=reasons.no_free_gpus(job), record=RunRecord(queued_at_ms=0)) for job in declared.jobs
    )
    return render(declared, Schedule(at_ms=0, decisions=decisions), cache)


def written_for(engine: Engine, declared: Declared) -> Manifests:
    """What gpuctl writes for that engine: the engine's objects, and the namespace of gpuctl's ledgers."""
    own = [each for each in waiting_manifests(replace(declared, jobs=())).items if each.ref.name == SYSTEM_NAMESPACE]
    found = target_objects(declared, engine).manifests
    return replace(found, items=tuple(sorted((*found.items, *own), key=lambda item: item.ref)))


def deciding_engine(cluster: Cluster, name: str) -> Engine | None:
    """The other engine whose objects gpuctl keeps for that cluster, by its ledgers; None: gpuctl's own engine decides.

    Raises ClusterUnavailable or Forbidden where they can't be read.
    """
    ledgers = ledgers_on(cluster).ledgers_of(name)
    kept = {(ref.api_version, ref.kind) for ledger in ledgers for ref in ledger.inventory}
    return next((engine for engine in Engine if not kept.isdisjoint(kinds.of_engine(engine))), None)


def left_to(engine: Engine, declared: Declared, state: ClusterState, now_ms: Instant) -> Schedule:
    """The observed state of each job, in the form of decisions, where gpuctl decides nothing. Cost: linear in jobs."""
    runs = {(run.job, run.digest): run for run in state.runs}
    seen = (_seen(engine, job, runs.get((job.id, job.digest)), declared, state, now_ms) for job in declared.jobs)
    return Schedule(at_ms=now_ms, decisions=tuple(seen))


def _seen(  # noqa: PLR0913, PLR0917 - a job, its run, and what both depend on
    engine: Engine, job: Job, run: Run | None, declared: Declared, state: ClusterState, now_ms: Instant
) -> Decision:
    # the other engine enforces its limit
    known = by_itself(replace(job, max_duration_ms=None), run, declared, state, now_ms)
    if known is not None:
        return known
    reason, record = reasons.left_to(engine.called), record_of(run, now_ms)
    if run is not None and run.phase in ACTIVE:
        return Keep(job=job.id, reason=reason, record=record, placement=run.placement or NOWHERE)
    return Pending(job=job.id, reason=reason, record=record)
