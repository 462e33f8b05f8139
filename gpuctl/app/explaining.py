"""`explain JOB DIR`: what the next cycle would decide on a job, and why. Nothing is written."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.app.cycle import CycleContext, foresee
from gpuctl.app.incidents import NO_INCIDENTS
from gpuctl.app.inspect import AskedNow
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Clock, Cluster
from gpuctl.app.session_ports import Sessions
from gpuctl.explain import explain
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Explanation
from gpuctl.model.ids import JobId
from gpuctl.plan import foreign_namespaces


def explain_live(
    declared: Declared, cluster: Cluster, clock: Clock, job: JobId, sessions: Sessions | None = None
) -> Explanation | None:
    """Explain a job in a cluster, as if these declarations were its newest commit; None if the job is not declared.

    `sessions`: reads the events of runs that do not start. Raises ClusterUnavailable or Forbidden if the cluster can't
    be read whole.
    """
    incidents = NO_INCIDENTS if sessions is None else AskedNow(sessions)
    context = CycleContext(object_cache=ObjectCache(cluster), clock=clock, incidents=incidents)
    foreseen = foresee(declared, context)
    vacancies = context.caches.engine_cache.vacancies()
    told = explain(foreseen.declared, foreseen.state, foreseen.schedule, job, vacancies)
    refusal = foreign_namespaces(foreseen.declared, foreseen.state).get(job.project)
    return told if told is None or refusal is None else replace(told, refusal=refusal)
