"""What Kueue says of the jobs that it decides about, for the commands that tell why a job runs or waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from gpuctl.app.inspect import Live
from gpuctl.app.ports import Cluster, NotFound
from gpuctl.k8s import kinds
from gpuctl.k8s.kueue_workloads import Condition, conditions_of, deciding
from gpuctl.k8s.objects import items, labels_of, text, uid
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.targets import Engine, engine_of
from gpuctl.views.jobs import JobView


def words_of_kueue(cluster: Cluster, current: Live, view: JobView) -> list[Condition]:
    """The conditions of the Workloads that Kueue keeps for a job's run. Raises ClusterUnavailable or Forbidden."""
    workloads = (body for body in _listed(cluster) if text(body, "metadata", "namespace") == view.ref.namespace)
    return conditions_of(workloads, _owners(current, view))


def with_words(cluster: Cluster, current: Live) -> Live:
    """`current` with Kueue's message on each job that Kueue decides about. Raises ClusterUnavailable or Forbidden.

    Cost: one list of Workloads if there is such a job, and linear in them; else nothing.
    """
    live = current.state.live
    asked = {view.ref for view in current.jobs if engine_of(labels_of(live.get(view.ref, {}))) is Engine.KUEUE}
    if not asked:
        return current
    owned: dict[str, list[Body]] = {}
    for body in _listed(cluster):
        for owner in items(body, "metadata", "ownerReferences"):
            owned.setdefault(text(owner, "uid"), []).append(body)

    def said(view: JobView) -> str:
        owners = _owners(current, view)
        condition = deciding(conditions_of((body for one in owners for body in owned.get(one, ())), owners))
        return "" if condition is None else condition.sentence

    jobs = tuple(replace(view, said=said(view)) if view.ref in asked else view for view in current.jobs)
    return replace(current, jobs=jobs)


def _listed(cluster: Cluster) -> Iterable[Body]:
    try:
        return cluster.list(kinds.KUEUE_WORKLOAD).items
    except NotFound:
        return ()


def _owners(current: Live, view: JobView) -> Collection[str]:
    """The uids of a run's object and its pods. A Job owns its Workload itself; for a service its pods own Workloads."""
    pods = (ObjectRef(*kinds.POD, view.ref.namespace, pod.name) for pod in view.pods)
    return {uid(current.state.live.get(ref, {})) for ref in (view.ref, *pods)} - {""}
