"""A project's ResourceQuota: a ceiling against what bypasses Git, never in the way of gpuctl's own pods.

Sharing GPUs is the engine's work; this only bounds what somebody with access to the namespace can take by hand. A
quota that refused a pod the engine has placed would leave a run that holds GPUs and never starts, so each ceiling is
at least what the engine may ever let go:

- `requests.nvidia.com/gpu`, whole GPUs of the device plugin: the project's limit, rounded up, or all declared GPUs of
  the plugin's pools in its domains, whichever is less; and never less than what it is given right now, which is more
  after its limit was cut (running work drains) or when live nodes are not in the declared inventory. Pools without
  the plugin give 0: nobody gets a GPU there by this name. Pods that are gone or terminal don't count in it.
- `<class>.deviceclass.resource.k8s.io/devices`, DRA: claims count from the moment a pod exists until it is gone, and a
  fraction counts as one device. So: the devices of all workers of all the project's declared jobs, twice, because a
  changed job's old run may still be leaving, or be stuck on a lost node, when the new one starts. The number of claims
  is bounded this way, not the GPUs behind them: a fraction's share is checked by kube-scheduler against the device.
- A CPU job has neither, and no key is set that every pod would have to request (cpu, memory), so it is never counted.

Source: Kubernetes documentation, "Resource Quotas", sections on extended resources and on device classes.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuctl.k8s import names
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared, Project, Sharing
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.units import WHOLE_GPU
from gpuctl.render.devices import device_count
from gpuctl.render.owner import ProjectOwner

QUOTA_NAME = "gpuctl"


def resource_quota(owner: ProjectOwner, declared: Declared, runs: Iterable[tuple[Job, Placement | None]]) -> Manifest:
    """The ceiling of one project; `runs` are its declared jobs, each with the place it is to run in now, if any."""
    placed, claimed = 0, 0
    for job, place in runs:
        devices = device_count(job)
        pools = [declared.cluster.pool(name) for name in job.pools]
        if any(pool.sharing is Sharing.DRA for pool in pools):
            claimed += devices * job.workers
        if place is not None and any(pool.sharing is not Sharing.DRA for pool in owner.cluster.pools_of(job, place)):
            placed += devices * len(place.workers)
    hard = {f"requests.{names.GPU_RESOURCE}": str(max(_plugin_ceiling(owner.project, declared), placed))}
    if any(pool.sharing is Sharing.DRA for pool in declared.cluster.pools):
        hard[f"{names.DRA_DEVICE_CLASS}.deviceclass.resource.k8s.io/devices"] = str(2 * claimed)
    return owner.manifest(names.RESOURCE_QUOTA, QUOTA_NAME, {"spec": {"hard": hard}})


def _plugin_ceiling(project: Project, declared: Declared) -> int:
    """GPUs of the device plugin that the project may hold at most, over all its domains."""
    ceiling = 0
    for domain in declared.domains:
        allowance = project.allowances.get(domain.name)
        if allowance is None:
            continue
        pools = [declared.cluster.pool(name) for name in domain.pools]
        capacity = sum(pool.gpu_milli for pool in pools if pool.sharing is not Sharing.DRA)
        most = capacity if allowance.limit_milli is None else min(capacity, allowance.limit_milli)
        ceiling += -(-most // WHOLE_GPU)
    return ceiling
