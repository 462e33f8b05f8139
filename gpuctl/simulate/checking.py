"""Check that the jobs, projects, nodes and devices that a scenario names exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.span import SourceSpan
from gpuctl.diag.wording import message
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, NodeName
from gpuctl.model.job import Job
from gpuctl.simulate.scenario import (
    Delete,
    Event,
    Finish,
    Given,
    GivenRun,
    Scenario,
    SetForeign,
    SetIdle,
    SetLoad,
    SetNode,
    SetStuck,
)


def mistakes(scenario: Scenario, stages: Sequence[Declared]) -> tuple[Diagnostic, ...]:
    """Report each unknown name. `stages` are the declarations at 0s, then after each event."""
    return (
        *_given(scenario, stages[0]),
        *(found for event, before in zip(scenario.events, stages, strict=False) for found in _event(event, before)),
        *_expected(scenario, stages),
    )


def _given(scenario: Scenario, declared: Declared) -> Iterator[Diagnostic]:
    jobs = {job.id: job for job in declared.jobs}
    named = [(run.job, run.span) for run in scenario.given.running]
    named += [(waiting.job, waiting.span) for waiting in scenario.given.queued]
    for id_, span in named:
        if id_ not in jobs:
            yield _unknown("job", str(id_), span)
    for run in scenario.given.running:
        problem = _problem(run, jobs[run.job], declared) if run.job in jobs else ""
        if problem:
            yield _diagnostic("GPU3902", run.span, job=str(run.job), problem=problem)
    if scenario.given.usage_milli_hours and declared.cluster.scheduling.fairness_half_life_ms is None:
        yield replace(_diagnostic("GPU3905", scenario.span), severity=Severity.WARNING)
    yield from _foreign(scenario.given, _devices(declared))
    for node in scenario.given.nodes_ready.keys() - _devices(declared).keys():
        yield _unknown("node", node, scenario.span)


def _foreign(given: Given, devices: Mapping[NodeName, int]) -> Iterator[Diagnostic]:
    """Report foreign GPUs beyond those that the given jobs leave free on a node; a fraction occupies its whole GPU."""
    held: dict[NodeName, set[int]] = {}
    for run in given.running:
        for worker in run.placement.workers:
            held.setdefault(worker.node, set()).update(worker.gpus)
    for each in given.foreign:
        if each.node not in devices:
            yield _unknown("node", each.node, each.span)
            continue
        free = devices[each.node] - len(held.get(each.node, ()))
        if each.gpus > free:
            yield _too_many(each.node, each.gpus, free, each.span)


def _too_many(node: NodeName, gpus: int, free: int, span: SourceSpan) -> Diagnostic:
    return _diagnostic("GPU3906", span, node=node, gpus=gpus, free=max(0, free))


def _problem(run: GivenRun, job: Job, declared: Declared) -> str:
    """Why a job can't run where the scenario says; "" if it can."""
    devices = _devices(declared)
    workers = run.placement.workers
    if not job.min_workers <= len(workers) <= job.workers:
        return f"it has {job.workers} {_plural(job.workers, 'worker')}, not {len(workers)}"
    wanted = -(-job.gpu_milli // 1000)
    for worker in workers:
        if worker.node not in devices:
            return f"there is no node {worker.node}"
        if len(set(worker.gpus)) != len(worker.gpus) or any(not 0 <= gpu < devices[worker.node] for gpu in worker.gpus):
            return f"{worker.node} has GPUs 0 to {devices[worker.node] - 1}"
        if len(worker.gpus) != wanted:
            return f"a worker needs {wanted} {_plural(wanted, 'device')}, not {len(worker.gpus)}"
    return ""


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _event(event: Event, before: Declared) -> Iterator[Diagnostic]:
    match event.what:
        case Delete(jobs=jobs):
            wanted: tuple[JobId, ...] = jobs
        case Finish(job=job) | SetIdle(job=job) | SetStuck(job=job) | SetLoad(job=job):
            wanted = (job,)
        case SetNode(node=node):
            if node not in _devices(before):
                yield _unknown("node", node, event.span)
            return
        case SetForeign(node=node, gpus=gpus):
            devices = _devices(before)
            if node not in devices:
                yield _unknown("node", node, event.span)
            elif gpus > devices[node]:
                yield _too_many(node, gpus, devices[node], event.span)
            return
        case _:
            return
    known = {job.id for job in before.jobs}
    for id_ in wanted:
        if id_ not in known:
            yield _unknown("job", str(id_), event.span)


def _expected(scenario: Scenario, stages: Sequence[Declared]) -> Iterator[Diagnostic]:
    jobs = {job.id for stage in stages for job in stage.jobs}
    projects = {project.name for stage in stages for project in stage.projects}
    for expectation in scenario.expectations:
        for name in expectation.projects:
            if name not in projects:
                yield _unknown("project", name, expectation.spans["project", name])
        for id_ in expectation.jobs:
            if id_ not in jobs:
                yield _unknown("job", str(id_), expectation.spans["job", str(id_)])


def _devices(declared: Declared) -> dict[NodeName, int]:
    return {node.name: node.gpus for pool in declared.cluster.pools for node in pool.nodes}


def _unknown(what: str, name: str, span: SourceSpan) -> Diagnostic:
    return _diagnostic("GPU3901", span, what=what, name=name)


def _diagnostic(code: str, span: SourceSpan, **params: str | int) -> Diagnostic:
    return Diagnostic(code=code, message=message(code, params), span=span, help=CODES[code].fix)
