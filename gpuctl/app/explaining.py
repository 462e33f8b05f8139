"""`explain JOB DIR`: what the next cycle would decide of a job, and why; nothing is written."""

from __future__ import annotations

from gpuctl.app.cycle import CycleContext, foresee
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Clock, Cluster
from gpuctl.explain import explain
from gpuctl.model.declared import Declared
from gpuctl.model.explanation import Explanation
from gpuctl.model.ids import JobId


def explain_live(declared: Declared, cluster: Cluster, clock: Clock, job: JobId) -> Explanation | None:
    """Explain a job of a cluster whose newest commit these declarations are; None for one that is not declared.

    Raises ClusterUnavailable or Forbidden when the cluster can't be read whole.
    """
    context = CycleContext(object_cache=ObjectCache(cluster), clock=clock)
    foreseen = foresee(declared, context)
    vacancies = context.caches.outlook.vacancies()
    return explain(foreseen.declared, foreseen.state, foreseen.schedule, job, vacancies)
