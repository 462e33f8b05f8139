"""Claims (Dynamic Resource Allocation) for exactly the devices that the engine chose, so that kube-scheduler itself
refuses to book one twice.

HAMi's driver: devices by `minor`, with a capacity of each. Amounts are rounded down to the driver's steps (1 Mi, 1 % of
the cores), so that two halves always fit one device. NVIDIA's driver: whole GPUs by uuid; a slice by its profile and
the uuid of its GPU.
"""

from __future__ import annotations

from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.quantity import MEBIBYTE, format_bytes
from gpuctl.model.decision import Placement
from gpuctl.model.declared import NAMEABLE_GPUS, Way
from gpuctl.model.job import Job
from gpuctl.model.manifest import Manifest
from gpuctl.model.units import WHOLE_GPU
from gpuctl.render.devices import CLAIM, DeviceTerms, device_class, uuids_at
from gpuctl.render.owner import JobOwner, Spec

MILLI_PER_CORE = 10
"""HAMi's driver counts a device's cores in percent."""


def claim_template(owner: JobOwner, terms: DeviceTerms, place: Placement) -> Manifest:
    """The template for the devices of one placement.

    All workers share it: its selector has all their devices, and the count makes each worker take its own number.
    """
    kind = _nvidia(terms, place) if terms.way is Way.NVIDIA_CLAIM else _hami(owner.job, terms, place)
    exactly = {
        "deviceClassName": device_class(terms.way, terms.profile),
        "allocationMode": "ExactCount",
        "count": terms.count,
        **kind,
    }
    devices = {"requests": [{"name": CLAIM, "exactly": exactly}]}
    body = {"spec": {"metadata": {"labels": owner.run_labels}, "spec": {"devices": devices}}}
    return owner.run_manifest(kinds.CLAIM_TEMPLATE, body)


def _hami(job: Job, terms: DeviceTerms, place: Placement) -> dict[str, Any]:
    minors = sorted({gpu for worker in place.workers for gpu in worker.gpus})
    return {
        "capacity": {"requests": _capacity(job, terms)},
        "selectors": [_selector(f"device.attributes['{names.DRA_DRIVER}'].minor in {minors}")],
    }


def _nvidia(terms: DeviceTerms, place: Placement) -> dict[str, Any]:
    attributes, uuids = f"device.attributes['{names.NVIDIA_DRIVER}']", uuids_at(place)
    tests = [f"{attributes}.profile == '{terms.profile}'"] if terms.profile else []
    if len(uuids) <= NAMEABLE_GPUS:
        tests.append(f"{attributes}.{'parentUUID' if terms.profile else 'uuid'} in {uuids}")
    return {"selectors": [_selector(" && ".join(tests))]} if tests else {}


def _selector(expression: str) -> Spec:
    return {"cel": {"expression": expression}}


def _capacity(job: Job, terms: DeviceTerms) -> Spec:
    """The amounts a worker may use of each of its devices: all of whole ones, else its share, or the memory it asked
    for."""
    milli = min(WHOLE_GPU, terms.gpu_milli)
    share = terms.mem_bytes * milli // WHOLE_GPU if job.gpu_mem_bytes is None else job.gpu_mem_bytes
    return {"cores": str(milli // MILLI_PER_CORE), "memory": format_bytes(share // MEBIBYTE * MEBIBYTE)}
