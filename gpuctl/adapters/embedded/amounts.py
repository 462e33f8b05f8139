"""The resources a pod asks for, as integers: milli-CPU, bytes, pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.k8s.objects import items, mapping
from gpuctl.k8s.quantity import parse_milli, parse_whole
from gpuctl.model.state import Body

Amounts = Mapping[str, int]


def amount(resource: str, value: object) -> int:
    """One quantity in the unit of its resource: CPU in thousandths, all else in whole units."""
    return parse_milli(value) if resource.rpartition(".")[2] == "cpu" else parse_whole(value)


def amounts(quantities: Mapping[str, object]) -> dict[str, int]:
    """A resource list as integers."""
    return {resource: amount(resource, value) for resource, value in quantities.items()}


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum by resource."""
    result: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            result[resource] = result.get(resource, 0) + value
    return result


def pod_asks(pod: Body, field: str = "requests") -> dict[str, int]:
    """The resources a pod asks for; `field` is requests or limits.

    For each resource it is the sum over all containers and sidecars, or, if that is more, an init container with the
    sidecars before it.
    """
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in items(pod, "spec", "initContainers"):
        asked = total([sidecars, amounts(mapping(container, "resources", field))])
        if container.get("restartPolicy") == "Always":
            sidecars = asked
        most = {resource: max(most.get(resource, 0), asked.get(resource, 0)) for resource in {**most, **asked}}
    own = (amounts(mapping(c, "resources", field)) for c in items(pod, "spec", "containers"))
    together = total([sidecars, *own])
    return {name: max(together.get(name, 0), most.get(name, 0)) for name in {**together, **most}}
