"""What a run is charged, and what its pods request beyond that.

A run holds what it is charged, at the places it was given. A tenant of its namespace may add pods to it, or make its
pods request more: anything beyond the charge counts as foreign, on the pod's node. So the pods' requests take
precedence over every record of them, and nothing on a node is counted twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuctl.k8s.requests import Requests
from gpuctl.model.ids import NodeName
from gpuctl.model.mig import least_charge_milli
from gpuctl.model.state import Charge
from gpuctl.model.units import WHOLE_GPU, GpuMilli
from gpuctl.observe.devices import HeldDevice
from gpuctl.observe.pods import Pod

ROUNDED_MILLI: GpuMilli = 10
"""A share of a device may be granted in steps of a hundredth, so a surplus below one step does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """What one pod has on a node beyond the charge of its run."""

    node: NodeName
    requests: Requests
    devices: tuple[HeldDevice, ...] = ()


def device_count(charge: Charge) -> int:
    """The devices that one worker is charged for: whole ones, or the one it has a part of."""
    return -(-charge.gpu_milli // WHOLE_GPU)


def charged_devices(pod: Pod, charge: Charge, planned: tuple[int, ...] = ()) -> tuple[HeldDevice, ...]:
    """The pod's devices on its node that its run is charged for: the planned ones first, then by index."""
    own = [device for device in pod.devices if device.node == pod.node]
    own.sort(key=lambda device: (device.gpu not in planned, device.gpu, device.uuid))
    return tuple(own[: device_count(charge)]) if charge.gpu_milli else tuple(own)


def excess_of(pod: Pod, charge: Charge, *, named: bool) -> Excess | None:
    """The requests of a run's pod beyond the run's charge; None if there are none, as for nearly every pod.

    `named`: on the pod's node even a part of a GPU is requested as one, and given by name (HAMi).
    """
    if pod.node is None or not pod.live or not pod.bound:
        return None
    asks = pod.requests
    expected = device_count(charge) if named else charge.gpu_milli // WHOLE_GPU
    beyond = Requests(
        cpu_milli=max(0, asks.cpu_milli - charge.cpu_milli),
        mem_bytes=max(0, asks.mem_bytes - charge.mem_bytes),
        gpus=max(0, asks.gpus - expected),
        slices=asks.slices if asks.slices and not _is_charged_slice(asks.slices, charge) else {},
    )
    devices = tuple(_beyond(pod, charge)) if pod.devices else ()
    return Excess(node=pod.node, requests=beyond, devices=devices) if devices or beyond != _NOTHING else None


_NOTHING = Requests()


def _is_charged_slice(slices: Mapping[str, int], charge: Charge) -> bool:
    """Whether these slices are the one MIG slice that the run is charged for, and no larger one."""
    ((profile, count), *more) = slices.items()
    return not more and count == 1 and least_charge_milli(profile) <= charge.gpu_milli < WHOLE_GPU


def _beyond(pod: Pod, charge: Charge) -> Iterable[HeldDevice]:
    charged = charged_devices(pod, charge)
    yield from (device for device in pod.devices if device not in charged)
    share = min(WHOLE_GPU, charge.gpu_milli)
    for device in charged:
        if not device.slices and device.milli - share >= ROUNDED_MILLI:
            yield replace(device, milli=device.milli - share)


def charge_by_pods(pods: Iterable[Pod]) -> Charge:
    """The charge of a run that no ledger knows: what one of its pods requests, or is given by name."""
    for pod in pods:
        shares = [device.milli for device in pod.devices]
        gpu_milli = sum(shares) or WHOLE_GPU * pod.requests.gpus
        return Charge(gpu_milli=gpu_milli, cpu_milli=pod.requests.cpu_milli, mem_bytes=pod.requests.mem_bytes)
    return Charge()
