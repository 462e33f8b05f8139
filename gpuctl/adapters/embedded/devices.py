"""Dynamic resource allocation: the devices, what claims hold of them, and what one more claim would get.

A request asks for an exact count. Devices with `allowMultipleAllocations` are shared by consuming their capacities;
others are held whole. Requests are served in order, each by the first devices that fit. A real allocator searches over
combinations; gpuctl writes one request a claim, which needs no search.

Source: KEP-4381 (structured parameters), KEP-5075 (consumable capacity).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuctl.adapters.embedded.bodies import Key, at
from gpuctl.adapters.embedded.cel import Literal, selector
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import flag, items, mapping, number, text
from gpuctl.k8s.quantity import format_bytes, parse_whole
from gpuctl.model.state import Body

_GPU = re.compile(r"gpu-([0-9]+)")


class DeviceKey(NamedTuple):
    """The names that identify a device."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of a node. `capacity` as in its slice; `attributes` under their qualified names."""

    key: DeviceKey
    shared: bool
    attributes: Mapping[str, Literal]
    capacity: Mapping[str, Any]

    @property
    def minor(self) -> int:
        """The index of its GPU, by which drivers name it; -1 for a device of another kind."""
        found = _GPU.search(self.key.name)
        return -1 if found is None else int(found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of one device that a claim gets; `consumed` is None for a device held whole."""

    request: str
    device: DeviceKey
    consumed: Mapping[str, int] | None


class DeviceBook:
    """An index over slices and claims. Cost: O(devices of the slice or claim) a write."""

    def __init__(self) -> None:
        self._slices: dict[str, dict[Key, tuple[Device, ...]]] = {}
        self._held: dict[DeviceKey, dict[tuple[Key, int], Mapping[str, int] | None]] = {}

    def note(self, key: Key, old: Body | None, new: Body | None) -> None:
        """Take up a write."""
        if key.kinds == kinds.RESOURCE_SLICE:
            for body in filter(None, (old,)):
                self._slices.get(text(body, "spec", "nodeName"), {}).pop(key, None)
            if new is not None:
                self._slices.setdefault(text(new, "spec", "nodeName"), {})[key] = _devices(new)
        if key.kinds == kinds.RESOURCE_CLAIM and at(old, "status", "allocation") != at(new, "status", "allocation"):
            for index, share in enumerate(allocated(old)):
                self._held[share.device].pop((key, index), None)
            for index, share in enumerate(allocated(new)):
                self._held.setdefault(share.device, {})[key, index] = share.consumed

    def on(self, node: str) -> Iterator[Device]:
        """The devices of a node, slice by slice."""
        for _, devices in sorted(self._slices.get(node, {}).items()):
            yield from devices

    def held(self, device: DeviceKey) -> Sequence[Mapping[str, int] | None]:
        """The parts of a device that claims hold."""
        return list(self._held.get(device, {}).values())


def allocate(
    book: DeviceBook, classes: Mapping[str, Body], claims: Sequence[Body], node: str, first: Collection[int] = ()
) -> list[list[Share]] | None:
    """What each claim would get on a node, if possible of the GPUs in `first`; None if one claim can't be served
    there."""
    devices = sorted(book.on(node), key=lambda device: device.minor not in first) if first else [*book.on(node)]
    taken: list[Share] = []
    result: list[list[Share]] = []
    for claim in claims:
        mine: list[Share] = []
        for request in items(claim, "spec", "devices", "requests"):
            shares = _serve(book, classes, request, devices, [*taken, *mine])
            if shares is None:
                return None
            mine += shares
        taken += mine
        result.append(mine)
    return result


def _serve(
    book: DeviceBook, classes: Mapping[str, Body], request: Body, devices: Sequence[Device], taken: Sequence[Share]
) -> list[Share] | None:
    """The devices of a node that one request gets beside those taken already."""
    exactly = mapping(request, "exactly")
    device_class = classes.get(text(exactly, "deviceClassName"))
    if device_class is None:
        return None
    tests = [*_expressions(mapping(device_class, "spec")), *_expressions(exactly)]
    wanted = number(exactly, "count", default=1)
    shares: list[Share] = []
    for device in devices:
        if not all(selector(test)(device.key.driver, device.attributes) for test in tests):
            continue
        consumed = consumption(device, mapping(exactly, "capacity", "requests"))
        while len(shares) < wanted and _room(book, device, consumed, [*taken, *shares]):
            held = consumed if device.shared else None
            shares.append(Share(request=text(request, "name"), device=device.key, consumed=held))
    return shares if len(shares) == wanted else None


def consumption(device: Device, asked: Mapping[str, Any]) -> Mapping[str, int] | None:
    """What a request takes of each capacity, by the capacity's policy; None if the device can't give that."""
    if any(name not in device.capacity for name in asked):
        return None
    result: dict[str, int] = {}
    for name, capacity in device.capacity.items():
        policy = mapping(capacity, "requestPolicy")
        value = parse_whole(asked[name] if name in asked else policy.get("default", capacity["value"]))
        allowed = mapping(policy, "validRange")
        if allowed:
            low, step = parse_whole(allowed.get("min", "0")), parse_whole(allowed.get("step", "1"))
            value = max(value, low)
            value = low + -(-(value - low) // step) * step
            if value > parse_whole(allowed.get("max", capacity["value"])):
                return None
        if value > parse_whole(capacity["value"]):
            return None
        result[name] = value
    return result


def _room(book: DeviceBook, device: Device, consumed: Mapping[str, int] | None, taken: Sequence[Share]) -> bool:
    """Whether a device can give this beside what is held and taken of it."""
    held = [*book.held(device.key), *(share.consumed for share in taken if share.device == device.key)]
    if not device.shared:
        return not held and consumed is not None
    if consumed is None or None in held:
        return False
    for name, value in consumed.items():
        used = sum(share.get(name, 0) for share in held if share is not None)
        if used + value > parse_whole(device.capacity[name]["value"]):
            return False
    return True


def allocation(shares: Sequence[Share], node: str, serial: int) -> dict[str, Any]:
    """The allocation as a claim's status has it; `serial` tells shares of one device apart."""
    results = []
    for index, share in enumerate(shares):
        result: dict[str, Any] = {"request": share.request, **share.device._asdict(), "device": share.device.name}
        del result["name"]
        if share.consumed is not None:
            result["consumedCapacity"] = {name: format_bytes(value) for name, value in share.consumed.items()}
            result["shareID"] = f"{serial:08x}-0000-4000-9000-{index:012x}"
        results.append(result)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


def allocated(claim: Body | None) -> list[Share]:
    """The shares that a stored claim holds."""
    shares = []
    for result in items(claim or {}, "status", "allocation", "devices", "results"):
        consumed = result.get("consumedCapacity")
        held = None if consumed is None else {name: parse_whole(value) for name, value in consumed.items()}
        key = DeviceKey(text(result, "driver"), text(result, "pool"), text(result, "device"))
        shares.append(Share(request=text(result, "request"), device=key, consumed=held))
    return shares


def allocated_node(claim: Body) -> str:
    """The node of a stored claim's devices; "" while it has none."""
    for term in items(claim, "status", "allocation", "nodeSelector", "nodeSelectorTerms"):
        for field in items(term, "matchFields"):
            return str(field["values"][0])
    return ""


def _expressions(selecting: Body) -> list[str]:
    return [text(entry, "cel", "expression") for entry in items(selecting, "selectors")]


def _devices(resource_slice: Body) -> tuple[Device, ...]:
    spec = mapping(resource_slice, "spec")
    driver, pool = text(spec, "driver"), text(spec, "pool", "name")
    return tuple(
        Device(
            key=DeviceKey(driver, pool, text(device, "name")),
            shared=flag(device, "allowMultipleAllocations"),
            capacity=mapping(device, "capacity"),
            attributes={
                name if "/" in name else f"{driver}/{name}": next(iter(value.values()))
                for name, value in mapping(device, "attributes").items()
            },
        )
        for device in items(spec, "devices")
    )
