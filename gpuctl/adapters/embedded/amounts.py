"""What a pod asks for, in integers: milli-CPU, bytes, pieces."""

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
    """A resource list in integers."""
    return {resource: amount(resource, value) for resource, value in quantities.items()}


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum, resource by resource."""
    result: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            result[resource] = result.get(resource, 0) + value
    return result


def pod_asks(pod: Body, field: str = "requests") -> dict[str, int]:
    """All containers and sidecars together, or an init container and the sidecars before it where that is more, by
    resource; `field` is requests or limits."""
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
