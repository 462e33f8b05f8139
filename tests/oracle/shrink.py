"""Smaller worlds with the same disagreement: jobs, projects, nodes and settings are dropped while it remains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from gpuctl.model.ids import JobId
from gpuctl.model.state import ACTIVE

from .cluster import NOW_MS, start
from .worlds import JobSpec, OwnerSpec, RunSpec, WorldSpec, declared, quotas_fit

T = TypeVar("T")


def reduced(value: T, smaller: Callable[[T], Iterable[T]], keeps: Callable[[T], bool]) -> T:
    """The value after every step to a smaller one that `keeps` accepts, until no step is accepted. After an accepted
    step, the failed steps before it come last: trying them first each time takes four times as many tries."""
    steps, at, in_vain = [*smaller(value)], 0, 0
    while in_vain < len(steps):
        each = steps[at % len(steps)]
        if keeps(each):
            value, in_vain = each, 0
            steps = [*smaller(value)]
        else:
            at, in_vain = at + 1, in_vain + 1
    return value


def shrink(spec: WorldSpec, is_same: Callable[[WorldSpec], bool]) -> WorldSpec:
    """The world after every step that keeps `is_same` true, until no step does."""
    at_rest = rested(spec)
    if at_rest is not None and is_same(at_rest):
        spec = at_rest
    return reduced(spec, smaller_worlds, lambda smaller: is_valid(smaller) and is_same(smaller))


def rested(spec: WorldSpec) -> WorldSpec | None:
    """The world that starts as this one is at rest, before the wanted job is added; None if it does not rest."""
    base = spec.without(spec.wanted)
    cluster = start(base)
    if cluster.settle(declared(base)) is None:
        return None
    runs = []
    for each in base.runs:
        run = cluster.runs[JobId.parse(each.job)]
        since_ms = run.started_at_ms if run.phase in ACTIVE and run.started_at_ms is not None else run.queued_at_ms
        places = tuple((str(w.node), w.gpus) for w in run.placement.workers) if run.placement else ()
        runs.append(RunSpec(job=each.job, ago_s=max(1, (NOW_MS - since_ms) // 1000), places=places))
    return replace(spec, runs=tuple(runs))


def smaller_worlds(spec: WorldSpec) -> Iterator[WorldSpec]:
    if spec.wanted:
        yield replace(spec.without(spec.wanted), wanted="")
    for job in spec.jobs:
        if job.id != spec.wanted:
            yield spec.without(job.id)
    yield from _fewer_owners(spec)
    yield from _fewer_nodes(spec)
    yield from _plainer_settings(spec)
    for job in spec.jobs:
        yield from (_with_job(spec, job, plainer) for plainer in _plainer_jobs(spec, job))
    for kind in ("projects", "departments"):
        owners: tuple[OwnerSpec, ...] = getattr(spec, kind)
        for index, owner in enumerate(owners):
            for plainer in _plainer_owners(owner):
                yield replace(spec, **{kind: (*owners[:index], plainer, *owners[index + 1 :])})  # type: ignore[arg-type]
    for run in spec.runs:
        if run.ago_s % 10:
            rounded = replace(run, ago_s=max(10, run.ago_s // 10 * 10))
            yield replace(spec, runs=tuple(rounded if each is run else each for each in spec.runs))


def _fewer_owners(spec: WorldSpec) -> Iterator[WorldSpec]:
    used = {job.project for job in spec.jobs}
    for project in spec.projects:
        if project.name not in used:
            yield replace(spec, projects=tuple(p for p in spec.projects if p is not project))
    for department in spec.departments:
        rest = tuple(d for d in spec.departments if d is not department)
        free = tuple(replace(p, department=None) if p.department == department.name else p for p in spec.projects)
        yield replace(spec, departments=rest, projects=free)


def _fewer_nodes(spec: WorldSpec) -> Iterator[WorldSpec]:
    """Worlds without the last node of a pool, or with one GPU less on a node, where no run is there."""
    for index, pool in enumerate(spec.pools):
        used = {(node, gpu) for run in spec.runs for node, gpus in run.places for gpu in gpus}
        for at, name in enumerate(pool.node_names()):
            is_last = at == len(pool.nodes) - 1
            gpus = pool.nodes[at] - 1
            if (name, gpus) in used or (gpus == 0 and not (is_last and at)):
                continue
            nodes = (*pool.nodes[:at], gpus, *pool.nodes[at + 1 :]) if gpus else pool.nodes[:at]
            yield replace(spec, pools=(*spec.pools[:index], replace(pool, nodes=nodes), *spec.pools[index + 1 :]))
    used_pools = {pool for job in spec.jobs for pool in job.pools}
    if len(spec.pools) > 1 and not spec.by_pool:
        for pool in spec.pools:
            if pool.name not in used_pools:
                yield replace(spec, pools=tuple(p for p in spec.pools if p is not pool))


def is_valid(spec: WorldSpec) -> bool:
    """Whether the compiler would accept the world, and no device carries too much at the start."""
    used: Counter[tuple[str, int]] = Counter()
    for run in spec.runs:
        for node, gpus in run.places:
            used.update({(node, gpu): min(1000, spec.job(run.job).milli) for gpu in gpus})
    for run in spec.runs:
        job = spec.job(run.job)
        if run.places and not job.least <= len(run.places) <= job.workers:
            return False
    return max(used.values(), default=0) <= 1000 and quotas_fit(spec)


def _plainer_settings(spec: WorldSpec) -> Iterator[WorldSpec]:
    if spec.min_runtime_s:
        yield replace(spec, min_runtime_s=0)
    if spec.fair_runtime_s:
        yield replace(spec, min_runtime_s=0, fair_runtime_s=0)
    if spec.overcommit:
        yield replace(spec, overcommit=False)
    if not spec.consolidation:
        yield replace(spec, consolidation=True)
    if any(pool.spread for pool in spec.pools):
        yield replace(spec, pools=tuple(replace(pool, spread=False) for pool in spec.pools))
    if any(pool.fractions for pool in spec.pools) and all(job.milli % 1000 == 0 for job in spec.jobs):
        yield replace(spec, pools=tuple(replace(pool, fractions=False) for pool in spec.pools))


def _plainer_jobs(spec: WorldSpec, job: JobSpec) -> Iterator[JobSpec]:
    placed = max((len(run.places) for run in spec.runs if run.job == job.id), default=0)
    runs = placed > 0
    if job.kind != "training" and job.preemptible:
        yield replace(job, kind="training")
    if job.kind == "inference":
        yield replace(job, kind="interactive")
    if job.kind != "training" and not job.preemptible:
        yield replace(job, kind="training", preemptible=True)
    if job.priority:
        yield replace(job, priority=job.priority - 1)
    if job.least < job.workers:
        yield replace(job, workers=placed or job.workers, least=placed or job.workers)
    if job.workers > 1 and not runs:
        yield replace(job, workers=job.workers - 1, least=min(job.least, job.workers - 1))
    if job.milli > 1000 and not runs:
        yield replace(job, milli=job.milli - 1000)
    if job.milli < 1000:
        yield replace(job, milli=1000)


def _with_job(spec: WorldSpec, job: JobSpec, plainer: JobSpec) -> WorldSpec:
    return replace(spec, jobs=tuple(plainer if each is job else each for each in spec.jobs))


def _plainer_owners(owner: OwnerSpec) -> Iterator[OwnerSpec]:
    if owner.limit is not None:
        yield replace(owner, limit=None)
    if owner.weight is not None:
        yield replace(owner, weight=None)
    if owner.priority:
        yield replace(owner, priority=0)
    for index, quota in enumerate(owner.quotas):
        for less in {0, quota - quota % 1000, max(0, quota - 1000)} - {quota}:
            yield replace(owner, quotas=(*owner.quotas[:index], less, *owner.quotas[index + 1 :]))
