"""Why jobs run now, from the cluster's objects alone: the recorded reason is that of the start, and does not change.

A namespace tells its project's quota, and the runs what the project holds. The fair share depends on all projects and
is not known here, so above the quota nothing more is said. With quotas by pool, or without the right to read
namespaces, the recorded reason is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpuctl.engine.shares.entitlement import reason_now
from gpuctl.k8s import kinds, names, objects
from gpuctl.k8s.annotations import decode_allowances
from gpuctl.model.declared import WHOLE_CLUSTER
from gpuctl.model.ids import RunKey
from gpuctl.model.memo import Sweep
from gpuctl.model.state import ACTIVE, ClusterState
from gpuctl.model.units import GpuMilli
from gpuctl.views.jobs import JobView, held_milli, job_views


def views_now(state: ClusterState, known: Sweep[RunKey, JobView] | None = None) -> tuple[JobView, ...]:
    """Every live run as in `job_views`; running ones with the reason why they run now. Cost: linear."""
    return tuple(with_reasons_now(state, job_views(state, known)))


def with_reasons_now(state: ClusterState, views: Iterable[JobView]) -> Iterable[JobView]:
    """The views with the reason why they run now, in place of that of the start."""
    found = tuple(views)
    quotas = _quotas(state)
    held: dict[tuple[str, bool], GpuMilli] = {}
    for view in found:
        for fixed in {False, not view.preemptible} if view.run.phase in ACTIVE else ():
            key = view.ref.namespace, fixed
            held[key] = held.get(key, 0) + held_milli(view.run)
    for view in found:
        quota, reason = quotas.get(view.ref.namespace), view.run.reason
        if view.run.phase not in ACTIVE or quota is None or reason is None:
            yield view
            continue
        milli = held[view.ref.namespace, not view.preemptible]
        yield replace(view, run=replace(view.run, reason=reason_now(reason, view.id.project, milli, quota, None)))


def _quotas(state: ClusterState) -> dict[str, GpuMilli]:
    """The quota of each project by its namespace, where quotas are of the whole cluster."""
    found: dict[str, GpuMilli] = {}
    for ref, body in state.live.items():
        if (ref.api_version, ref.kind) == kinds.NAMESPACE and names.PROJECT_LABEL in objects.labels_of(body):
            allowances = decode_allowances(objects.annotations_of(body).get(names.QUOTA_ANNOTATION)) or {}
            if WHOLE_CLUSTER in allowances:
                found[ref.name] = allowances[WHOLE_CLUSTER].quota_milli
    return found
