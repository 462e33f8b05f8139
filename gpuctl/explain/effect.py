"""What a change of the declarations does to jobs: the cluster at rest without it, then at rest with it.

Both are the same engine's decisions carried out as values, so whatever was about to happen anyway is no part of the
effect: a job that would start by itself is not said to be started by a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.explain.forecast import forecasts
from gpuctl.explain.progress import ACTIVE, come_to_rest
from gpuctl.model.decision import (
    Admit,
    Decision,
    Displace,
    Move,
    Pending,
    Placement,
    Preempt,
    Reclaim,
    Resize,
    Schedule,
    Suspended,
)
from gpuctl.model.declared import Declared
from gpuctl.model.effect import Effect, Holding, Moved, Paused, Prospect, Resized, Started, Stop, Stopped, Waits
from gpuctl.model.explanation import QueuePlace
from gpuctl.model.ids import JobId
from gpuctl.model.state import ClusterState, Node, Run
from gpuctl.model.units import GpuMilli, Instant
from gpuctl.schedule import Outlook
from gpuctl.schedule.reasons import GUARDED

Pause: TypeAlias = Reclaim | Preempt | Displace | Move


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """A cluster at rest: its runs by job, what was decided last, and on the way there: pauses, starts, sizes."""

    declared: Declared
    state: ClusterState
    decided: Schedule
    pauses: Mapping[JobId, Pause]
    starts: Mapping[JobId, Admit]
    sizes: Mapping[JobId, Resize]

    @property
    def running(self) -> dict[JobId, Run]:
        return {run.job: run for run in self.state.runs if run.phase in ACTIVE}

    @property
    def waiting(self) -> dict[JobId, Pending]:
        return {d.job: d for d in self.decided.decisions if isinstance(d, Pending)}


def at_rest(declared: Declared, state: ClusterState, now_ms: Instant) -> ClusterState:
    """The cluster once everything is done that the declarations ask for now. Cost: a few schedules."""
    return _at_rest(declared, state, now_ms).state


def effect_of(
    base: Declared | None, head: Declared, state: ClusterState, now_ms: Instant, nodes: tuple[Node, ...] | None = None
) -> Effect:
    """What head does to the jobs of a cluster that was to be as base says; no base: nothing was declared.

    `nodes`: those of the cluster under head, where they are others. Cost: some ten schedules, and two forecasts.
    """
    before = None if base is None else _at_rest(base, state, now_ms)
    began = state if before is None else before.state
    after = _at_rest(head, began if nodes is None else replace(began, nodes=nodes), now_ms)
    old, new = {} if before is None else before.running, after.running
    waits = tuple(_waits(before, after, now_ms))
    return Effect(
        at_ms=now_ms,
        started=tuple(_started(old, after)),
        paused=tuple(_paused(old, after)),
        moved=tuple(_moved(old, after)),
        resized=tuple(_resized(old, after)),
        stopped=tuple(_stopped(old, after)),
        waits=waits,
        holdings=tuple(_holdings(before, after)),
        unaffected=sum(_is_same(old.get(job), run) for job, run in new.items()),
        endless=sum(job.max_duration_ms is None and job.id in new for job in head.jobs),
    )


def _at_rest(declared: Declared, state: ClusterState, now_ms: Instant) -> _Rest:
    pauses: dict[JobId, Pause] = {}
    starts: dict[JobId, Admit] = {}
    sizes: dict[JobId, Resize] = {}
    decided, rest = Schedule(at_ms=now_ms), state
    for decided, rest in come_to_rest(declared, state, now_ms, Outlook()):  # noqa: B007 - the last ones
        for decision in decided.decisions:
            match decision:
                case Admit():
                    starts[decision.job] = decision
                case Reclaim() | Preempt() | Displace() | Move():
                    pauses[decision.job] = decision
                case Resize():
                    sizes[decision.job] = decision
                case _:
                    pass
    return _Rest(declared=declared, state=rest, decided=decided, pauses=pauses, starts=starts, sizes=sizes)


def _is_same(old: Run | None, new: Run) -> bool:
    """Whether a run goes on untouched."""
    return old is not None and (old.digest, old.starts, old.placement) == (new.digest, new.starts, new.placement)


def _started(old: Mapping[JobId, Run], after: _Rest) -> Iterator[Started]:
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


def _paused(old: Mapping[JobId, Run], after: _Rest) -> Iterator[Paused]:
    running, waiting = after.running, after.waiting
    for job, pause in sorted(after.pauses.items()):
        was = old.get(job)
        if was is not None and job not in running and job in waiting:
            yield Paused(job=job, gpu_milli=_held(was), reason=pause.reason, beneficiary=_beneficiary(pause))


def _moved(old: Mapping[JobId, Run], after: _Rest) -> Iterator[Moved]:
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
        )


def _resized(old: Mapping[JobId, Run], after: _Rest) -> Iterator[Resized]:
    for job, run in sorted(after.running.items()):
        was, size = old.get(job), after.sizes.get(job)
        if was is None or size is None or (was.digest, was.starts) != (run.digest, run.starts):
            continue
        if _workers(was) != _workers(run):
            yield Resized(job=job, before=_workers(was), after=_workers(run), beneficiary=size.beneficiary)


def _stopped(old: Mapping[JobId, Run], after: _Rest) -> Iterator[Stopped]:
    """Runs that end for good, but for those whose job runs anew."""
    running = after.running
    declared = {job.id: job for job in after.declared.jobs}
    decisions: dict[JobId, Decision] = {decision.job: decision for decision in after.decided.decisions}
    for job, was in sorted(old.items()):
        if job in running:
            continue
        if job not in declared:
            why = Stop.REMOVED
        elif declared[job].digest != was.digest:
            why = Stop.CHANGED
        elif isinstance(decisions.get(job), Suspended):
            why = Stop.SUSPENDED
        elif isinstance(decisions.get(job), Pending):
            continue
        else:
            why = Stop.TIMED_OUT
        yield Stopped(job=job, gpu_milli=_held(was), why=why)


def _waits(before: _Rest | None, after: _Rest, now_ms: Instant) -> Iterator[Waits]:
    waiting = after.waiting
    then = {} if before is None else _prospects(before, waiting.keys() & before.waiting.keys(), now_ms)
    now = _prospects(after, waiting.keys(), now_ms)
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


def _prospects(rest: _Rest, jobs: Iterable[JobId], now_ms: Instant) -> dict[JobId, Prospect]:
    wanted = frozenset(jobs)
    if not wanted:
        return {}
    found = forecasts(rest.declared, rest.state, now_ms, wanted)
    places = queue_places(rest.decided.queue)
    return {job: Prospect(forecast=found[job], place=places.get(job)) for job in wanted}


def _advances(before: tuple[JobId, ...], after: tuple[JobId, ...]) -> dict[JobId, int]:
    """How many places each job goes forward among those that are in both queues."""
    both = frozenset(before) & frozenset(after)
    then = {job: index for index, job in enumerate(job for job in before if job in both)}
    return {job: then[job] - index for index, job in enumerate(job for job in after if job in both)}


def queue_places(queue: tuple[JobId, ...]) -> dict[JobId, QueuePlace]:
    """Where each job of a queue stands. Cost: linear."""
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


def _holdings(before: _Rest | None, after: _Rest) -> Iterator[Holding]:
    """Projects whose GPUs or share change."""
    then = {} if before is None else {(row.project, row.domain): row for row in before.decided.shares}
    now = {(row.project, row.domain): row for row in after.decided.shares}
    for project, domain in sorted(then.keys() | now.keys()):
        was, row = then.get((project, domain)), now.get((project, domain))
        held = (was.allocated_milli if was else 0, row.allocated_milli if row else 0)
        share = (was.share_milli if was else 0, row.share_milli if row else 0)
        if held[0] != held[1] or share[0] != share[1]:
            yield Holding(project=project, domain=domain, held=held, share=share)


def _beneficiary(pause: Pause) -> JobId | None:
    return None if isinstance(pause, Displace) else pause.beneficiary


def _workers(run: Run) -> int:
    return len(run.placement.workers) if run.placement is not None else 0


def _held(run: Run) -> GpuMilli:
    return run.gpu_milli * _workers(run)
