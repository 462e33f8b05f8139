"""Machines: the declared inventory as Node objects, and nodes that are lost and come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuctl.adapters.embedded.api import Api
from gpuctl.adapters.embedded.bodies import Key, holds, put, with_condition
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.drivers import (
    device_classes,
    gpu_annotations,
    gpu_labels,
    gpu_resources,
    resource_slice,
    slice_names,
)
from gpuctl.adapters.embedded.nodebook import NodeBook
from gpuctl.adapters.embedded.podwork import disrupted
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of, instant, is_deleting, items, mapping, text
from gpuctl.k8s.quantity import format_bytes, format_cpu
from gpuctl.model.declared import DeclaredNode, NodePool
from gpuctl.model.ids import NodeName
from gpuctl.model.state import Body

_PROVIDED = ("nodes", "provided")
_MAX_PODS = "110"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def provide(api: Api, pools: Sequence[NodePool]) -> None:
    """Make the declared nodes exist, and remove nodes that were declared before and are no longer."""
    declared: set[str] = set()
    for body in device_classes(pools):
        _store(api, body)
    for pool in pools:
        for node in pool.nodes:
            declared.add(node.name)
            _node(api, pool, node)
            published = resource_slice(pool, node)
            if published is not None:
                _store(api, published)
            _without(api, node.name, but="" if published is None else text(published, "metadata", "name"))
    for name in api.store.fact(*_PROVIDED, default=()):
        if name not in declared:
            _without(api, name)
            if api.store.get(Key(*kinds.NODE, "", name)) is not None:
                api.delete(Key(*kinds.NODE, "", name))
    api.store.set_fact(*_PROVIDED, sorted(declared))


def _without(api: Api, node: str, but: str = "") -> None:
    """Remove a node's slices, all but one."""
    for name in slice_names(node):
        key = Key(*kinds.RESOURCE_SLICE, "", name)
        if name != but and api.store.get(key) is not None:
            api.delete(key)


def set_ready(api: Api, node: NodeName, *, ready: bool) -> None:
    """Have the node's kubelet stop reporting, or report again. Raises NotFound for a node that is not there."""
    body = api.find(Key(*kinds.NODE, "", node))
    status, reason = ("True", "KubeletReady") if ready else ("Unknown", "NodeStatusUnknown")
    body = with_condition(body, {"type": "Ready", "status": status, "reason": reason}, api.instant)
    taints: list[Any] = [taint for taint in items(body, "spec", "taints") if taint["key"] != _UNREACHABLE]
    if not ready:
        taints += [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    api.replace(put(body, ("spec", "taints"), taints))


def set_cordoned(api: Api, node: NodeName, *, cordoned: bool) -> None:
    """Have the node take no new pods, or take them again. Raises NotFound for a node that is not there."""
    api.replace(put(api.find(Key(*kinds.NODE, "", node)), ("spec", "unschedulable"), cordoned))


class Evictions:
    """The controller that removes pods from nodes that stay lost, after the time of their tolerations."""

    name = "evictions"

    def __init__(self, desk: Desk, book: NodeBook) -> None:
        self._desk = desk
        self._book = book

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A node whose readiness changed."""
        changed = old is None or new is None or holds(old, "Ready") != holds(new, "Ready")
        return (key,) if key.kinds == kinds.NODE and changed and new is not None else ()

    def sync(self, key: Key) -> None:
        """Delete the pods of a node that has been lost for long enough."""
        node = self._desk.store.get(key)
        if node is None or holds(node, "Ready"):
            return
        ready = next((c for c in items(node, "status", "conditions") if c["type"] == "Ready"), {})
        due = (instant(ready, "lastTransitionTime") or 0) + self._desk.timings.eviction_ms
        if due > self._desk.instant:
            self._desk.again(self.name, key, due)
            return
        for pod_key in self._book.on(key.name):
            pod = self._desk.store.get(pod_key)
            if pod is not None and not is_deleting(pod):
                self._desk.api.replace(disrupted(pod, "DeletionByTaintManager", self._desk.instant))
                self._desk.api.delete(pod_key)


_LONGEST_LABEL = 63
"""The most characters of a label's value; a node's name may have 253."""


def _node(api: Api, pool: NodePool, node: DeclaredNode) -> None:
    capacity = {"cpu": format_cpu(node.cpu_milli), "memory": format_bytes(node.mem_bytes), "pods": _MAX_PODS}
    capacity |= gpu_resources(pool, node)
    labels = {
        "kubernetes.io/hostname": node.name[:_LONGEST_LABEL].rstrip("-."),
        "kubernetes.io/os": "linux",
        **node.labels,
        **gpu_labels(pool, node),
        **pool.match_labels,
    }
    old = api.store.get(Key(*kinds.NODE, "", node.name))
    live = old if old is not None else {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "spec": {}, "status": {},
    }  # fmt: skip
    body = put(live, ("metadata", "labels"), {name: value for name, value in labels.items() if value})
    registered = gpu_annotations(pool, node)
    if registered or names.HAMI_REGISTER_ANNOTATION in annotations_of(body):
        notes = {k: v for k, v in annotations_of(body).items() if k != names.HAMI_REGISTER_ANNOTATION}
        body = put(body, ("metadata", "annotations"), {**notes, **registered})
    status = {**mapping(body, "status"), "capacity": capacity, "allocatable": capacity}
    body = put(body, ("status",), status)
    if old is None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        api.create(with_condition(body, ready, api.instant))
    else:
        api.replace(body)


def _store(api: Api, body: Body) -> None:
    """Create the object, or change the existing one to it."""
    old = api.store.get(Key(body["apiVersion"], body["kind"], "", text(body, "metadata", "name")))
    if old is None:
        api.create(body)
    else:
        api.replace({**old, **body, "metadata": old["metadata"]})
