"""The effect of a change on jobs: the difference between the cluster at rest without the change and at rest with it.

Both are the engine's decisions carried out as values. So what would happen anyway is not part of the effect: a job that
would start without the change is not reported as started by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gpuctl.engine.reasons import GUARDED
from gpuctl.explain.forecast import forecasts
from gpuctl.explain.rest import Pause, Rest
from gpuctl.model.checkpoint import work_since_checkpoint
from gpuctl.model.decision import Decision, Displace, Pending, Placement, Suspended
from gpuctl.model.declared import Declared
from gpuctl.model.effect import (
    Dequeued,
    Effect,
    Holding,
    Moved,
    Paused,
    Prospect,
    Resized,
    Started,
    Stop,
    Stopped,
    Waits,
)
from gpuctl.model.explanation import QueuePlace
from gpuctl.model.ids import DomainName, JobId, NodeName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.state import Node, Run
from gpuctl.model.units import DurationMs, GpuMilli, Instant


def effect_of(before: Rest | None, after: Rest) -> Effect:
    """The effect of a change on the jobs of a cluster that was at rest before it; None: nothing was declared.

    Cost: two forecasts; the rest is linear.
    """
    old, new = {} if before is None else before.running, after.running
    waits = tuple(_waits(before, after))
    holdings = tuple(_holdings(before, after))
    jobs = {job.id: job for job in after.declared.jobs}
    return Effect(
        at_ms=after.at_ms,
        started=tuple(_started(old, after)),
        paused=tuple(_paused(old, after, jobs)),
        moved=tuple(_moved(old, after, jobs)),
        resized=tuple(_resized(old, after)),
        stopped=tuple(_stopped(old, after, jobs)),
        dequeued=tuple(_dequeued(before, after, jobs)),
        waits=waits,
        holdings=tuple(each for each in holdings if each.changes),
        steady=tuple(each for each in holdings if not each.changes),
        unaffected=sum(_is_same(old.get(job), run) for job, run in new.items()),
        endless=sum(job.max_duration_ms is None and job.id in new for job in after.declared.jobs),
        sweeps={job.id: job.declared_as for job in after.declared.jobs if job.sweep is not None},
    )


def _is_same(old: Run | None, new: Run) -> bool:
    """Whether a run continues unchanged."""
    return old is not None and (old.digest, old.starts, old.placement) == (new.digest, new.starts, new.placement)


def _started(old: Mapping[JobId, Run], after: Rest) -> Iterator[Started]:
    for job, run in sorted(after.running.items()):
        was, start = old.get(job), after.starts.get(job)
        if start is None or (was is not None and was.digest == run.digest):
            continue
        yield Started(
            job=job,
            gpu_milli=_held(run),
            placement=run.placement or start.placement,
            reason=start.reason,
            pauses=tuple(sorted(victim for victim, pause in after.pauses.items() if _beneficiary(pause) == job)),
            anew=was is not None,
        )


def _lost_ms(was: Run, job: Job | None, now_ms: Instant) -> DurationMs | None:
    """The most work that a run has to do again once it is stopped. For a run that was not seen to run yet (which is
    every run where no live cluster is asked), that is the whole time between two checkpoints."""
    every_ms = None if job is None else job.checkpoint_ms
    if was.started_at_ms is None or was.started_at_ms >= now_ms:
        return every_ms
    return work_since_checkpoint(every_ms, was.started_at_ms, now_ms, was.checkpointed_at_ms)


def _paused(old: Mapping[JobId, Run], after: Rest, jobs: Mapping[JobId, Job]) -> Iterator[Paused]:
    running, waiting = after.running, after.waiting
    for job, pause in sorted(after.pauses.items()):
        was = old.get(job)
        if was is not None and job not in running and job in waiting:
            lost_ms = _lost_ms(was, jobs.get(job), after.at_ms)
            for_job = _beneficiary(pause)
            yield Paused(job=job, gpu_milli=_held(was), reason=pause.reason, beneficiary=for_job, lost_ms=lost_ms)


def _moved(old: Mapping[JobId, Run], after: Rest, jobs: Mapping[JobId, Job]) -> Iterator[Moved]:
    for job, run in sorted(after.running.items()):
        was, pause = old.get(job), after.pauses.get(job)
        if was is None or pause is None or was.digest != run.digest or was.starts == run.starts:
            continue
        yield Moved(
            job=job,
            gpu_milli=_held(run),
            before=was.placement or Placement(workers=()),
            after=run.placement or Placement(workers=()),
            reason=pause.reason,
            beneficiary=_beneficiary(pause),
            lost_ms=_lost_ms(was, jobs.get(job), after.at_ms),
        )


def _resized(old: Mapping[JobId, Run], after: Rest) -> Iterator[Resized]:
    for job, run in sorted(after.running.items()):
        was, size = old.get(job), after.sizes.get(job)
        if was is None or size is None or (was.digest, was.starts) != (run.digest, run.starts):
            continue
        if _workers(was) != _workers(run):
            yield Resized(job=job, before=_workers(was), after=_workers(run), beneficiary=size.beneficiary)


def _stopped(old: Mapping[JobId, Run], after: Rest, jobs: Mapping[JobId, Job]) -> Iterator[Stopped]:
    """Runs that end for good, except where a new run of the job has started."""
    running = after.running
    decisions: dict[JobId, Decision] = {decision.job: decision for decision in after.decided.decisions}
    for job, was in sorted(old.items()):
        if job in running:
            continue
        if job not in jobs:
            why = Stop.REMOVED
        elif jobs[job].digest != was.digest:
            why = Stop.CHANGED
        elif isinstance(decisions.get(job), Suspended):
            why = Stop.SUSPENDED
        elif isinstance(decisions.get(job), Pending):
            continue
        else:
            why = Stop.TIMED_OUT
        yield Stopped(job=job, gpu_milli=_held(was), why=why)


def _dequeued(before: Rest | None, after: Rest, jobs: Mapping[JobId, Job]) -> Iterator[Dequeued]:
    """Jobs that waited, and now neither run nor wait, because they are no longer declared, or suspended."""
    if before is None:
        return
    asked = {job.id: job.total_gpu_milli for job in before.declared.jobs}
    for job in sorted(before.waiting.keys() - after.waiting.keys() - after.running.keys()):
        now = jobs.get(job)
        if now is None or now.suspend:
            yield Dequeued(job=job, gpu_milli=asked[job], suspended=now is not None)


def _waits(before: Rest | None, after: Rest) -> Iterator[Waits]:
    waiting = after.waiting
    then = {} if before is None else _prospects(before, waiting.keys() & before.waiting.keys())
    now = _prospects(after, waiting.keys())
    asked = {job.id: job.total_gpu_milli for job in after.declared.jobs}
    advances = {} if before is None else _advances(before.decided.queue, after.decided.queue)
    for job, decision in sorted(waiting.items()):
        kept = decision.reserved if decision.reason.code == GUARDED else None
        yield Waits(
            job=job,
            gpu_milli=asked[job],
            reason=decision.reason,
            now=now[job],
            before=then.get(job),
            advance=advances.get(job, 0),
            kept=kept,
        )


def _prospects(rest: Rest, jobs: Iterable[JobId]) -> dict[JobId, Prospect]:
    wanted = frozenset(jobs)
    if not wanted:
        return {}
    found = forecasts(rest, wanted)
    places = queue_places(rest.decided.queue)
    return {job: Prospect(forecast=found[job], place=places.get(job)) for job in wanted}


def _advances(before: tuple[JobId, ...], after: tuple[JobId, ...]) -> dict[JobId, int]:
    """How many positions each job advances, among the jobs that are in both queues."""
    both = frozenset(before) & frozenset(after)
    then = {job: index for index, job in enumerate(job for job in before if job in both)}
    return {job: then[job] - index for index, job in enumerate(job for job in after if job in both)}


def queue_places(queue: tuple[JobId, ...]) -> dict[JobId, QueuePlace]:
    """The position of each job of a queue. Cost: linear."""
    own: dict[str, int] = {}
    for job in queue:
        own[job.project] = own.get(job.project, 0) + 1
    so_far: dict[str, int] = {}
    places = {}
    for index, job in enumerate(queue, start=1):
        so_far[job.project] = so_far.get(job.project, 0) + 1
        places[job] = QueuePlace(
            in_project=so_far[job.project], of_project=own[job.project], overall=index, of_all=len(queue)
        )
    return places


def _holdings(before: Rest | None, after: Rest) -> Iterator[Holding]:
    """What each project holds, and its fair share."""
    then = {} if before is None else {(row.project, row.domain): row for row in before.decided.shares}
    now = {(row.project, row.domain): row for row in after.decided.shares}
    fixed = ({} if before is None else _fixed(before), _fixed(after))
    for key in sorted(then.keys() | now.keys()):
        was, row = then.get(key), now.get(key)
        yield Holding(
            project=key[0],
            domain=key[1],
            held=(was.allocated_milli if was else 0, row.allocated_milli if row else 0),
            share=(was.share_milli if was else 0, row.share_milli if row else 0),
            fixed=(fixed[0].get(key, 0), fixed[1].get(key, 0)),
        )


def _fixed(rest: Rest) -> dict[tuple[ProjectName, DomainName], GpuMilli]:
    """What non-preemptible jobs hold, by project and quota domain. Cost: linear in runs and nodes."""
    domains = domains_of(rest.declared, rest.state.nodes)
    jobs = {job.id for job in rest.declared.jobs if not job.preemptible}
    found: Counter[tuple[ProjectName, DomainName]] = Counter()
    for job, run in rest.running.items():
        for worker in run.placement.workers if job in jobs and run.placement is not None else ():
            if worker.node in domains:
                found[job.project, domains[worker.node]] += run.gpu_milli
    return dict(found)


def domains_of(declared: Declared, nodes: Iterable[Node]) -> dict[NodeName, DomainName]:
    """The quota domain of each node in a pool; a node belongs to the first pool that selects it."""
    domain_of = {pool: domain.name for domain in declared.domains for pool in domain.pools}
    pools = declared.cluster.pools
    found = ((node.name, next((pool.name for pool in pools if pool.selects(node.labels)), None)) for node in nodes)
    return {name: domain_of[pool] for name, pool in found if pool in domain_of}


def _beneficiary(pause: Pause) -> JobId | None:
    return None if isinstance(pause, Displace) else pause.beneficiary


def _workers(run: Run) -> int:
    return len(run.placement.workers) if run.placement is not None else 0


def _held(run: Run) -> GpuMilli:
    return run.gpu_milli * _workers(run)
