"""How a request for GPUs becomes real: device-plugin limits, or a DRA claim for the very devices the engine chose.

With the device plugin the kubelet picks the devices and only their number is ours. With DRA a ResourceClaimTemplate
names them by `minor` and asks for capacity of each, so that kube-scheduler itself refuses to book a device twice.
All amounts round down to what the driver grants in (1 Mi, 1 % of the cores): two halves always fit one device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.quantity import MEBIBYTE, format_bytes
from gpuctl.model.decision import Placement
from gpuctl.model.declared import Sharing
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.units import WHOLE_GPU, GpuMilli, MemBytes
from gpuctl.render.owner import ClusterOwner, JobOwner, Spec

CLAIM = "gpu"
"""What the claim is called in the pod, and its one request in the claim."""

MILLI_PER_CORE = 10
"""The driver counts a device's cores in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTerms:
    """What each worker gets in the pools it is placed in, or waits for: `count` devices, `gpu_milli` in all.

    `mem_bytes` is the memory of one device there; the least, where workers are in several pools.
    """

    dra: bool
    count: int
    gpu_milli: GpuMilli
    mem_bytes: MemBytes


def device_count(job: Job) -> int:
    """Devices one worker takes: whole ones, or the one it has a fraction of."""
    return -(-job.gpu_milli // WHOLE_GPU)


def device_terms(cluster: ClusterOwner, job: Job, place: Placement | None) -> DeviceTerms:
    """A run's terms where it is placed; one that waits has those of its first pool, at its largest charge."""
    pools = cluster.pools_of(job, place)
    charges = [job.gpu_milli_on(pool.gpu_mem_bytes) for pool in pools] if place is not None else []
    return DeviceTerms(
        dra=any(pool.sharing is Sharing.DRA for pool in pools),
        count=device_count(job),
        gpu_milli=max(charges, default=job.gpu_milli),
        mem_bytes=min((pool.gpu_mem_bytes for pool in pools), default=0),
    )


def container_resources(terms: DeviceTerms) -> tuple[Spec, Spec]:
    """The GPU part of a container's requests and limits, and of its claims."""
    if not terms.count:
        return {}, {}
    if terms.dra:
        return {}, {"claims": [{"name": CLAIM}]}
    return {names.GPU_RESOURCE: str(terms.count)}, {}


def pod_claims(owner: JobOwner, terms: DeviceTerms) -> Spec:
    """The pod's claim, made from the run's template, which has the run's name."""
    if not terms.dra or not terms.count:
        return {}
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": owner.run}]}


def claim_template(owner: JobOwner, terms: DeviceTerms, place: Placement) -> Manifest:
    """The template for the devices of one placement.

    All workers share it: its selector has the union of their devices, the count makes each take its own number.
    """
    minors = sorted({gpu for worker in place.workers for gpu in worker.gpus})
    exactly: dict[str, Any] = {
        "deviceClassName": names.DRA_DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": terms.count,
        "capacity": {"requests": _capacity(owner.job, terms)},
        "selectors": [{"cel": {"expression": f"device.attributes['{names.DRA_DRIVER}'].minor in {minors}"}}],
    }
    devices = {"requests": [{"name": CLAIM, "exactly": exactly}]}
    body = {"spec": {"metadata": {"labels": owner.run_labels}, "spec": {"devices": devices}}}
    return owner.run_manifest(names.CLAIM_TEMPLATE, body)


def _capacity(job: Job, terms: DeviceTerms) -> Spec:
    """What a worker may use of each of its devices: all of whole ones, else its share, or the memory it asked for."""
    milli = min(WHOLE_GPU, terms.gpu_milli)
    share = terms.mem_bytes * milli // WHOLE_GPU if job.gpu_mem_bytes is None else job.gpu_mem_bytes
    return {"cores": str(milli // MILLI_PER_CORE), "memory": format_bytes(share // MEBIBYTE * MEBIBYTE)}
