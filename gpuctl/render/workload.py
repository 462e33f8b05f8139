"""Training and interactive jobs: a Job that is suspended until its run is released.

A worker never has two live pods: a pod is replaced only once it is terminal. A pod that the cluster itself disrupts (a
drained or lost node) is no failure of the job and takes none of its retries.
"""

from __future__ import annotations

from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import encode_charge, template_digest
from gpuctl.k8s.suspension import with_suspension
from gpuctl.k8s.workload_table import OF_JOB
from gpuctl.model.manifest import Manifest
from gpuctl.render.devices import DeviceTerms
from gpuctl.render.gang import gang_success
from gpuctl.render.owner import JobOwner
from gpuctl.render.pod import charge_of, pod_template
from gpuctl.render.standing import Standing

_NO_FAILURE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


_UNLIMITED = 2**31 - 1
"""Kubernetes' own default of `backoffLimit` if there is a limit for each index."""


def batch_job(owner: JobOwner, terms: DeviceTerms, standing: Standing) -> Manifest:
    """The run's Job, decision included."""
    workers = standing.workers_of(owner.job)
    template = pod_template(owner, terms, standing.place, {"restartPolicy": "Never"})
    spec: dict[str, Any] = {
        "parallelism": workers,
        "completions": workers,
        **_retries(owner),
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": _NO_FAILURE,
        "template": template,
        **gang_success(owner),
    }
    if owner.is_gang:
        spec["completionMode"] = "Indexed"
    if standing.running and standing.deadline_s is not None:
        spec["activeDeadlineSeconds"] = standing.deadline_s
    facts = {
        **standing.facts,
        **owner.type_overrides,
        names.CHARGE_ANNOTATION: encode_charge(charge_of(owner.job, terms)),
        names.TEMPLATE_ANNOTATION: template_digest(template),
    }
    return owner.run_manifest(kinds.JOB, with_suspension(OF_JOB, {"spec": spec}, stopped=not standing.running), facts)


def _retries(owner: JobOwner) -> dict[str, Any]:
    """The failures that the Job allows: of all workers together; or of each worker, so that the first one to exceed its
    limit fails the Job."""
    runs = owner.job.container
    if not runs.retries_per_worker:
        return {"backoffLimit": runs.retries}
    if not owner.is_gang:
        return {"backoffLimit": min(runs.retries or _UNLIMITED, runs.retries_per_worker)}
    return {
        "backoffLimit": runs.retries or _UNLIMITED,
        "backoffLimitPerIndex": runs.retries_per_worker,
        "maxFailedIndexes": 0,
    }
