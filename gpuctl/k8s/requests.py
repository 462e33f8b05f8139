"""The amounts that a pod, or a pod template, requests of its node: CPU, memory, and devices of the device plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gpuctl.k8s import names
from gpuctl.k8s.objects import items, mapping, milli, whole
from gpuctl.model.mig import is_profile_name
from gpuctl.model.units import CpuMilli, MemBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The amounts that a pod keeps from others; `gpus`, and MIG `slices` by profile, only those of the device
    plugin."""

    cpu_milli: CpuMilli = 0
    mem_bytes: MemBytes = 0
    gpus: int = 0
    slices: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: Requests) -> Requests:
        """The sum of both."""
        return Requests(
            cpu_milli=self.cpu_milli + other.cpu_milli,
            mem_bytes=self.mem_bytes + other.mem_bytes,
            gpus=self.gpus + other.gpus,
            slices={**self.slices, **{name: self.slices.get(name, 0) + n for name, n in other.slices.items()}},
        )

    def times(self, count: int) -> Requests:
        """The requests of `count` such pods."""
        return Requests(
            cpu_milli=self.cpu_milli * count,
            mem_bytes=self.mem_bytes * count,
            gpus=self.gpus * count,
            slices={profile: each * count for profile, each in self.slices.items()},
        )

    def either(self, other: Requests) -> Requests:
        """The larger of both, resource by resource."""
        return Requests(
            cpu_milli=max(self.cpu_milli, other.cpu_milli),
            mem_bytes=max(self.mem_bytes, other.mem_bytes),
            gpus=max(self.gpus, other.gpus),
            slices={**self.slices, **{name: max(self.slices.get(name, 0), n) for name, n in other.slices.items()}},
        )


class Starting(NamedTuple):
    """The requests of an init container; `stays`: it is a sidecar, which runs until the pod's end."""

    need: Requests
    stays: bool


def of_containers(running: Iterable[Requests], starting: Iterable[Starting]) -> Requests:
    """The amounts that the scheduler counts, for each resource: the sum of containers and sidecars, or the need of an
    init container and of the sidecars before it, if that is more. `starting`: in the order in which they start.

    Source: kubernetes/enhancements, KEP-753 (sidecar containers), "Resources calculation for scheduling".
    """
    sidecars, peak = Requests(), Requests()
    for each in starting:
        if each.stays:
            sidecars = sidecars.plus(each.need)
        else:
            peak = peak.either(sidecars.plus(each.need))
    together = sidecars
    for need in running:
        together = together.plus(need)
    return together.either(peak)


def requests_of(spec: Mapping[str, Any]) -> Requests:
    """The amounts that the scheduler counts for a pod's spec."""
    starting = (
        Starting(_of_container(container), container.get("restartPolicy") == "Always")
        for container in items(spec, "initContainers")
    )
    needs = of_containers(map(_of_container, items(spec, "containers")), starting)
    return _of_pod(spec, needs).plus(_amounts(mapping(spec, "overhead")))


def profile_counts(amounts: Mapping[str, object]) -> dict[str, int]:
    """The number of slices by profile in a list of resources."""
    prefix = names.MIG_RESOURCE_PREFIX
    found = {name.removeprefix(prefix): whole(amounts, name) for name in amounts if name.startswith(prefix)}
    return {profile: count for profile, count in found.items() if count > 0 and is_profile_name(profile)}


def _of_pod(spec: Mapping[str, Any], needs: Requests) -> Requests:
    """The requests of a pod: CPU and memory requested for the pod as a whole replace those of its containers.

    Source: kubernetes/enhancements, KEP-2837 (pod-level resources).
    """
    whole_pod = mapping(spec, "resources")
    if not whole_pod:
        return needs
    said = _of_container(spec)
    named = {*mapping(whole_pod, "limits"), *mapping(whole_pod, "requests")}
    return replace(
        needs,
        cpu_milli=said.cpu_milli if "cpu" in named else needs.cpu_milli,
        mem_bytes=said.mem_bytes if "memory" in named else needs.mem_bytes,
    )


def _of_container(container: Mapping[str, Any]) -> Requests:
    """The requests of a container. An absent request equals the limit."""
    resources = mapping(container, "resources")
    return _amounts({**mapping(resources, "limits"), **mapping(resources, "requests")})


def _amounts(amounts: Mapping[str, Any]) -> Requests:
    return Requests(
        cpu_milli=milli(amounts, "cpu"),
        mem_bytes=whole(amounts, "memory"),
        gpus=whole(amounts, names.GPU_RESOURCE),
        slices=profile_counts(amounts),
    )
