"""A notice for jobs with an idleTimeout in a cluster where nothing says which GPUs are idle."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.wording import message
from gpuctl.k8s import names
from gpuctl.k8s.objects import annotations_of
from gpuctl.model.declared import Declared
from gpuctl.model.ids import JobId, RunDigest
from gpuctl.model.job import Job
from gpuctl.model.state import ClusterState, RunPhase
from gpuctl.model.units import Instant


def no_idle_reports(declared: Declared, state: ClusterState, now_ms: Instant) -> Iterator[Diagnostic]:
    """A notice for the first job that has run for its idleTimeout, if none of its pods has the annotation of idle GPUs.

    An empty annotation says that the GPUs are in use, so a writer of it exists. Pods of other jobs do not count: a team
    may write the annotation by itself, and would end the notice for all. Where gpuctl measures idle GPUs itself it
    needs no annotation.

    Cost: a look at each job with an idleTimeout; linear in pods only if one of them has run that long.
    """
    if state.is_measured:
        return
    limited = {(job.id, job.digest): job for job in declared.jobs if job.idle_timeout_ms is not None}
    if not limited:
        return
    spent: dict[tuple[JobId, RunDigest], Job] = {}
    for run in state.runs:
        job = limited.get((run.job, run.digest))
        if job is None or job.idle_timeout_ms is None or run.phase is not RunPhase.RUNNING:
            continue
        has_run_long = run.started_at_ms is not None and now_ms - run.started_at_ms >= job.idle_timeout_ms
        if has_run_long and run.idle_since_ms is None:
            spent[run.job, run.digest] = job
    for ref, key in state.pods.items() if spent else ():
        if key in spent and names.IDLE_SINCE_ANNOTATION in annotations_of(state.live[ref]):
            del spent[key]
    if spent:
        first = min(spent.values(), key=lambda job: job.id)
        told = message("GPU7059", {"job": str(first.id)})
        yield Diagnostic(code="GPU7059", message=told, span=first.span, severity=Severity.WARNING)
