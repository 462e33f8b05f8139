"""A project's ResourceQuota: a ceiling on what bypasses Git, which never refuses gpuctl's own pods.

Sharing GPUs is the engine's work; this quota only bounds what a person with access to the namespace can take by hand. A
quota that refused a pod the engine has placed would leave a run that holds GPUs and never starts, so each ceiling is at
least the most that the engine may ever release:

- `requests.nvidia.com/gpu`, GPUs by count: the project's limit, rounded up, or all declared GPUs of such pools in its
  domains, whichever is less. Never less than the project is given right now, which is more after a cut of its limit
  (running work drains), or if live nodes are not in the declared inventory. HAMi's GPUs are also counted by this name,
  one for each sharer: there a GPU counts as often as it may be shared. Pools of claims give 0: no pod gets a GPU there
  by this name. Pods that are gone or terminal don't count.
- `requests.nvidia.com/mig-<profile>`, slices by count: all declared ones of its domains, and never less than it is
  given.
- `<class>.deviceclass.resource.k8s.io/devices`, DRA: claims count from the moment a pod exists until it is gone, and a
  fraction counts as one device. So the ceiling is the devices of all workers of all the project's declared jobs, twice,
  because a changed job's old run may still be leaving, or be stuck on a lost node, when the new one starts. The plan
  adds what runs of removed jobs hold (`gpuctl/plan/ceilings.py`). This bounds the number of claims, not the GPUs behind
  them: kube-scheduler checks a fraction's share against the device.
- If NVIDIA's driver also serves `nvidia.com/gpu`, a GPU counts under that name and under the class, however it was
  requested: both ceilings are the sum of both.
- A CPU job needs neither, and no key is set that every pod would have to request (cpu, memory).
- `pods`, and `count/<kind>` of kinds that a cycle reads and people may create: gpuctl may hold each such object in
  memory, so their number has a ceiling. It leaves room for the objects of all declared jobs, twice, for the reason
  above, and for ROOM to 2 ROOM of people's own. It moves in steps of ROOM, so that single jobs that come and go cause
  no write.
  Exception: if a commit removes more than ROOM jobs and adds others, the new ones may be refused, and tried again after
  a minute, because the old ones still count. Pods that ended don't count: a Job keeps one for each try of each worker,
  and the cluster collects them (`--terminated-pod-gc-threshold`).

Source: Kubernetes documentation, "Resource Quotas", sections on extended resources, device classes and object counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import group_of
from gpuctl.k8s.workloads import kind_of
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Declared, NodePool, Project, Sharing, Way
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.units import WHOLE_GPU
from gpuctl.model.workload_kind import WorkloadKind
from gpuctl.render.devices import DeviceTerms, device_class, resource_name
from gpuctl.render.owner import ProjectOwner

_COUNTED = (Way.COUNT, Way.HAMI)
ROOM = 500
"""The number of objects of each kind that people may have in a project's namespace besides gpuctl's."""
_REVISIONS = 11
"""The ReplicaSets of one Deployment: its `revisionHistoryLimit`, which is the server's default, and the current one."""

_OF_OTHERS = {f"count/{info.plural}.{group_of(kind)}": kind for kind, info in kinds.KINDS.items() if info.of_others}
"""Kinds of other controllers, by the name under which a quota counts them."""

_Run: TypeAlias = tuple[Job, DeviceTerms, Placement | None]


def resource_quota(owner: ProjectOwner, declared: Declared, runs: Collection[_Run]) -> Manifest:
    """The ceiling of one project; `runs`: its declared jobs, each with its terms and the place where it should run
    now."""
    placed: Counter[str] = Counter()
    claimed: Counter[str] = Counter()
    for job, terms, place in runs:
        if terms.claims:
            claimed[device_class(terms.way, terms.profile)] += terms.count * job.workers
        elif place is not None:
            placed[resource_name(terms.profile)] += terms.count * len(place.workers)
    ceilings = _ceilings(owner.project, declared)
    counted = {name: max(ceilings[name], placed[name]) for name in sorted({names.GPU_RESOURCE, *ceilings, *placed})}
    classes = {name: 2 * claimed[name] for name in _device_classes(declared.cluster.pools)}
    if names.NVIDIA_GPU_CLASS in classes:
        either = counted[names.GPU_RESOURCE] + classes[names.NVIDIA_GPU_CLASS]
        counted[names.GPU_RESOURCE] = classes[names.NVIDIA_GPU_CLASS] = either
    hard = {f"requests.{name}": str(most) for name, most in counted.items()}
    hard |= {f"{name}{names.CLAIMED_DEVICES}": str(most) for name, most in classes.items()}
    hard |= {
        name: str((2 * own // ROOM + 2) * ROOM)
        for name, own in _objects(owner.project, runs, declared.cluster.workload_kinds).items()
    }
    return owner.manifest(kinds.RESOURCE_QUOTA, names.QUOTA_NAME, {"spec": {"hard": hard}})


def _objects(project: Project, runs: Collection[_Run], kinds_of_cluster: Iterable[WorkloadKind]) -> Mapping[str, int]:
    """The most objects that the project has with one run of each job, by the name under which a quota counts them.

    `kinds_of_cluster`: the kinds that the Cluster declares.
    """
    jobs = [job for job, _, _ in runs]
    others = [job.container.manifest for job in jobs if job.container.manifest is not None]
    workers = sum(job.workers if job.container.manifest is None else job.container.manifest.pods for job in jobs)
    served = sum(kind_of(job) == kinds.DEPLOYMENT for job in jobs)
    of_others = Counter((other.api_version, other.kind) for other in others)
    for other in others:
        of_others.update(other.made)
    declared = {row.kind: f"count/{row.plural}.{group_of(row.kind)}" for row in kinds_of_cluster}
    return {
        "pods": workers,
        "count/jobs.batch": len(jobs) - served - len(others) + of_others[kinds.JOB],
        "count/deployments.apps": served,
        "count/replicasets.apps": _REVISIONS * served,
        "count/horizontalpodautoscalers.autoscaling": served,
        **{
            f"count/{info.plural}.{group_of(kind)}": of_others[kind]
            for kind, info in kinds.KINDS.items()
            if info.of_others
        },
        **{name: of_others[kind] for kind, name in declared.items()},
        "count/services": 2 * len(jobs) + of_others[kinds.SERVICE],  # one for its ports, one for a gang's workers
        "count/ingresses.networking.k8s.io": len(jobs),
        "count/networkpolicies.networking.k8s.io": 1,
        "count/persistentvolumeclaims": sum(len(job.container.volumes) for job in jobs),
        "count/resourceclaims.resource.k8s.io": workers,
        "count/resourceclaimtemplates.resource.k8s.io": len(jobs),
        "count/rolebindings.rbac.authorization.k8s.io": len(project.access),
    }


def _ceilings(project: Project, declared: Declared) -> Counter[str]:
    """The most that the project may hold by count over all its domains: GPUs, and slices by profile."""
    ceilings: Counter[str] = Counter()
    for domain in declared.domains:
        allowance = project.allowances.get(domain.name)
        if allowance is None:
            continue
        pools = [pool for name in domain.pools if (pool := declared.cluster.pool(name)).way in _COUNTED]
        capacity = sum(pool.gpu_milli for pool in pools)
        most = capacity if allowance.limit_milli is None else min(capacity, allowance.limit_milli)
        sharers = max((pool.gpu_slots for pool in pools if pool.sharing is Sharing.HAMI), default=1)
        ceilings[names.GPU_RESOURCE] += -(-most // WHOLE_GPU) * sharers
        for pool in pools:
            ceilings.update(_slices(pool))
    return ceilings


def _slices(pool: NodePool) -> Counter[str]:
    """The declared slices of a pool, by the name under which they are counted."""
    counts: Counter[str] = Counter()
    for profile in pool.profiles:
        counts[resource_name(profile.name)] = profile.per_gpu * sum(
            node.mig.get(profile.name, 0) for node in pool.nodes
        )
    return counts


def _device_classes(pools: Iterable[NodePool]) -> list[str]:
    """The DeviceClasses of claims that are possible in these pools."""
    classes = {device_class(pool.way, profile) for pool in pools for profile in ("", *(p.name for p in pool.profiles))}
    return sorted(classes - {""})
