"""How often failed workers were started again, for people: by a run's object, and by its pods."""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.k8s import names, objects
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.workload_kinds import row_of
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.k8s.workloads import failed_indexes
from gpuctl.model.state import Body

_MOST = 1_000_000


def restarts_of(body: Body, by_pods: Iterable[int]) -> int:
    """Restarts of all workers of a run. `by_pods`: the restarts of each existing pod.

    A Job counts pods that failed; pods for which it had no retry left were not replaced. A Deployment counts nothing,
    but its pods stay when their container is started again.
    """
    row = row_of(body, BUILT_IN)  # a kind that a Cluster declares reports no restarts
    if row is not None:
        return objects.number(body, *row.restarts) if row.restarts else 0
    if body.get("kind") != "Job":
        return sum(by_pods)
    failed = objects.number(body, "status", "failed") - len(failed_indexes(body))
    return max(0, min(failed, objects.number(body, "spec", "backoffLimit", default=6)))


def pod_restarts(body: Body) -> int | None:
    """How often a pod's worker was started again before this pod, or its container in it; None if the pod says
    neither."""
    told = objects.annotations_of(body).get(names.INDEX_FAILURES_ANNOTATION)
    if told is not None:
        return whole_number(told, _MOST)
    if any(owner.get("kind") == "Job" for owner in objects.items(body, "metadata", "ownerReferences")):
        return None  # its containers are never started again: another pod is made
    statuses = objects.items(body, "status", "containerStatuses")
    main = (each for each in statuses if each.get("name") == names.MAIN_CONTAINER)
    return next((objects.number(each, "restartCount") for each in main), 0)
