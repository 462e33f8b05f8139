"""Notices of claims that something else has deleted while jobs use them: their data is gone once no pod uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import CLAIM
from gpuctl.k8s.objects import is_deleting
from gpuctl.k8s.workloads import job_of
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import ClusterState
from gpuctl.plan.prune import is_ours


def ending_claims(declared: Declared, state: ClusterState, refs: Iterable[ObjectRef]) -> Iterator[Diagnostic]:
    """A notice for each of these claims that is being deleted and belongs to a declared job. Cost: linear in the refs;
    in the declared jobs too if there is such a claim."""
    ending = [ref for ref in refs if (ref.api_version, ref.kind) == CLAIM and is_deleting(state.live[ref])]
    spans = {job.id: job.span for job in declared.jobs} if ending else {}
    for ref in sorted(ending):
        job = job_of(state.live[ref])
        if job in spans and is_ours(state.live[ref], declared.cluster.name, job.project):
            yield Diagnostic(
                code="GPU7062",
                message=message("GPU7062", {"object": str(ref), "job": str(job)}),
                span=spans[job],
                severity=Severity.WARNING,
            )
