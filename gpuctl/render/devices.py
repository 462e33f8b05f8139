"""How a request for GPUs is rendered: the fields that each way of requesting GPUs needs in a pod and around it.

Counted GPUs (device plugin, or NVIDIA's driver under its extended resource): gpuctl writes only their number, and the
node picks the devices; the same holds for slices that a device plugin counts by profile. With DRA and with HAMi exactly
the devices that the engine chose are requested, and their scheduler refuses to book one twice: see `claim_template` and
`hami`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.k8s import names
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Way
from gpuctl.model.job import Job
from gpuctl.model.units import WHOLE_GPU, GpuMilli, MemBytes
from gpuctl.render import hami
from gpuctl.render.owner import ClusterOwner, JobOwner, Spec

NO_GPUS: tuple[Spec, ...] = ({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},)
CLAIM = "gpu"
"""The name of the claim in the pod, and of the claim's one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTerms:
    """What each worker gets in the pools it is placed in, or waits for: `count` devices, `gpu_milli` charged in all.

    `profile`: of its slice, if it gets one. `mem_bytes`: the memory of one device there; the smallest, if workers are
    in several pools.
    """

    way: Way
    count: int
    gpu_milli: GpuMilli
    profile: str
    mem_bytes: MemBytes

    @property
    def claims(self) -> bool:
        """Whether a worker gets its devices by a claim."""
        return self.count > 0 and self.way in (Way.HAMI_CLAIM, Way.NVIDIA_CLAIM)

    @property
    def hami(self) -> bool:
        """Whether HAMi's scheduler assigns the devices."""
        return self.count > 0 and self.way is Way.HAMI


def device_count(job: Job) -> int:
    """The number of devices that one worker takes: whole ones, or the one it has a part of."""
    return -(-job.gpu_milli // WHOLE_GPU)


def device_terms(cluster: ClusterOwner, job: Job, place: Placement | None) -> DeviceTerms:
    """A run's terms in the pools where it is placed; a waiting run has those of its first pool, at its largest charge.

    All its pools provide GPUs in the same way, so that its pods request them in one way from the beginning.
    """
    pools = cluster.pools_of(job, place)
    grants = [grant for pool in pools if (grant := pool.grant(job.gpu_milli_on(pool.gpu_mem_bytes))) is not None]
    charges = [grant.gpu_milli for grant in grants] or [job.gpu_milli]
    return DeviceTerms(
        way=pools[0].way if pools else Way.COUNT,
        count=device_count(job),
        gpu_milli=max(charges) if place is not None else max(job.gpu_milli, *charges),
        profile=next((grant.profile for grant in grants if grant.profile), ""),
        mem_bytes=min((pool.gpu_mem_bytes for pool in pools), default=0),
    )


def resource_name(profile: str) -> str:
    """The resource name of counted GPUs, or of slices with that profile."""
    return f"{names.MIG_RESOURCE_PREFIX}{profile}" if profile else names.GPU_RESOURCE


def container_resources(job: Job, terms: DeviceTerms) -> tuple[Spec, Spec]:
    """The GPU part of a container's requests and limits, and of its claims."""
    if not terms.count:
        return {}, {}
    if terms.claims:
        return {}, {"claims": [{"name": CLAIM}]}
    if terms.hami:
        return hami.device_limits(job, terms.count), {}
    own = job.own_amounts.gpus
    return {resource_name(terms.profile): str(terms.count if own is None else own)}, {}


def device_env(job: Job, terms: DeviceTerms) -> tuple[Spec, ...]:
    """Variables that the way of sharing needs; for a job without GPUs, the variable that hides them.

    Images with CUDA ask for all GPUs by that variable, and get them if the runtime honours it (`install.pods`).
    """
    if not terms.count:
        return NO_GPUS
    return hami.device_env(job) if terms.hami else ()


def device_annotations(job: Job, terms: DeviceTerms, place: Placement) -> Spec:
    """Annotations about the devices of a placed run's pods."""
    return hami.device_choice(job, uuids_at(place)) if terms.hami else {}


def pod_devices(owner: JobOwner, terms: DeviceTerms) -> Spec:
    """The pod's claim, made from the run's template, which has the run's name; or the name of its scheduler."""
    if terms.claims:
        return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": owner.run}]}
    return {"schedulerName": names.HAMI_SCHEDULER} if terms.hami else {}


def uuids_at(place: Placement) -> list[str]:
    """The uuids of all devices of a placement, sorted."""
    return sorted({uuid for worker in place.workers for uuid in worker.uuids})


def device_class(way: Way, profile: str) -> str:
    """The DeviceClass of a claim's devices; "" for GPUs that are requested without a claim."""
    match way:
        case Way.HAMI_CLAIM:
            return names.DRA_DEVICE_CLASS
        case Way.NVIDIA_CLAIM:
            return names.NVIDIA_MIG_CLASS if profile else names.NVIDIA_GPU_CLASS
        case Way.COUNT | Way.HAMI:
            return ""
