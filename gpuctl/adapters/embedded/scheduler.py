"""kube-scheduler: finds a node for each unbound pod, or says why there is none.

Filters: node affinity and selector, cordons, taints, readiness, requests, claims for storage, claims for devices. Among
the nodes that pass it takes the least loaded, then the first by name. It never displaces a pod: gpuctl's priority class
forbids that. Pods of HAMi's scheduler are placed here too, by the same filters and HAMi's count of GPUs. Source:
pkg/scheduler, Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuctl.adapters.embedded.amounts import amounts, pod_asks
from gpuctl.adapters.embedded.bodies import Key, at, holds, put, terminal, with_condition
from gpuctl.adapters.embedded.claims import volume_claims
from gpuctl.adapters.embedded.controller import Desk
from gpuctl.adapters.embedded.devices import DeviceBook, Share, allocate, allocated_node, allocation
from gpuctl.adapters.embedded.hami import UNCOUNTED, hami_decision, is_hamis
from gpuctl.adapters.embedded.nodebook import NodeBook, job_of
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import annotations_of, is_deleting, items, labels_of, mapping, number, text, uid
from gpuctl.model.state import Body

DEALT = "dealt"
"""The fact about a declared job: where its workers are to be scheduled, the node and GPUs of each in order."""

QUEUE = Key(*kinds.POD, "", "")
"""Stands for all pods without a node: they are looked at together when something made room."""


class Scheduler:
    """The controller."""

    name = "scheduler"

    def __init__(self, desk: Desk, book: NodeBook, devices: DeviceBook) -> None:
        self._desk = desk
        self._book = book
        self._devices = devices

    def concerns(self, key: Key, old: Body | None, new: Body | None) -> Iterable[Key]:
        """A pod that changed, by itself; all pending pods after a write that may have made room."""
        if key.kinds == kinds.POD:
            if new is None or terminal(new):
                return (QUEUE,)
            return () if text(new, "spec", "nodeName") else (key,)
        if key.kinds == kinds.RESOURCE_CLAIM and new is not None:
            pods = (owner for owner in items(new, "metadata", "ownerReferences") if owner.get("kind") == "Pod")
            return [Key(*kinds.POD, key.namespace, str(owner["name"])) for owner in pods]
        return (QUEUE,) if key.kinds in {kinds.NODE, kinds.CLAIM, kinds.RESOURCE_CLAIM, kinds.RESOURCE_SLICE} else ()

    def sync(self, key: Key) -> None:
        """Try one pod, or every pod of the queue once: by priority, then in the order of their creation."""
        keys = self._book.pending() if key == QUEUE else [key] if self._book.is_pending(key) else []
        pods = [pod for k in keys if (pod := self._desk.store.get(k)) is not None]
        for pod in sorted(pods, key=lambda p: -number(p, "spec", "priority")):
            self._place(pod)

    def _place(self, pod: Body) -> None:
        asks = {name: n for name, n in pod_asks(pod).items() if not (name in UNCOUNTED and is_hamis(pod))} | {"pods": 1}
        missing, claims = self._claims(pod)
        if missing:
            self._say(pod, missing)
            return
        refusals: Counter[str] = Counter()
        fits: list[tuple[tuple[bool, int, str], list[list[Share]]]] = []
        dealt = self._dealt(pod)
        for node in self._candidates(pod):
            name = str(node["metadata"]["name"])
            reason = unfit(pod, node) or self._full(asks, node)
            if not reason and is_hamis(pod) and self._hami_on(pod, node) is None:
                reason = "NodeUnfitPod"
            shares = None if reason else self._devices_on(claims, name, dealt.get(name, ()))
            if shares is None:
                refusals[reason or "cannot allocate all claims"] += 1
            else:
                fits.append(((name not in dealt, self._load(node), name), shares))
        if fits:
            (*_, chosen), shares = min(fits, key=lambda fit: fit[0])
            self._bind(pod, chosen, list(zip(claims, shares, strict=True)))
        else:
            self._refuse(pod, refusals)

    def _bind(self, pod: Body, node: str, claims: Sequence[tuple[Body, Sequence[Share]]]) -> None:
        """Write the devices to the claims, then the node to the pod."""
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid(pod)}
        for claim, shares in claims:
            status = {**mapping(claim, "status"), "reservedFor": [*items(claim, "status", "reservedFor"), user]}
            if not allocated_node(claim):
                status["allocation"] = allocation(shares, node, self._desk.store.version)
            self._desk.api.replace(put(claim, ("status",), status))
        bound = put(self._noted_by_hami(pod, node), ("spec", "nodeName"), node)
        self._desk.api.replace(with_condition(bound, {"type": "PodScheduled", "status": "True"}, self._desk.instant))

    def _dealt(self, pod: Body) -> Mapping[str, Sequence[int]]:
        """The node where a scenario wants the pod, with its GPUs there; empty if kube-scheduler chooses."""
        job = job_of(pod)
        places = self._desk.store.fact(str(job), DEALT) if job is not None else None
        if job is None or not places:
            return {}
        others = [other for key in self._book.workers(job) if (other := self._desk.store.get(key)) is not None]
        bound = sum(bool(text(other, "spec", "nodeName")) and not terminal(other) for other in others)
        index = int(annotations_of(pod).get(names.WORKER_INDEX_LABEL, bound))
        return dict([places[index]]) if index < len(places) else {}

    def _hami_on(self, pod: Body, node: Body) -> str | None:
        """The GPUs HAMi would give a pod on a node."""
        others = (self._desk.store.get(key) for key in self._book.on(node["metadata"]["name"]))
        first = self._dealt(pod).get(node["metadata"]["name"], ())
        return hami_decision(pod, node, [other for other in others if other is not None], first)

    def _noted_by_hami(self, pod: Body, name: str) -> Body:
        """The pod with HAMi's decision, if HAMi decides on it."""
        node = self._desk.store.get(Key(*kinds.NODE, "", name))
        given = self._hami_on(pod, node) if node is not None and is_hamis(pod) else None
        if given is None:
            return pod
        notes = {names.HAMI_NODE_ANNOTATION: name, names.HAMI_DEVICES_ANNOTATION: given}
        return put(pod, ("metadata", "annotations"), {**annotations_of(pod), **notes})

    def _claims(self, pod: Body) -> tuple[str, list[Body]]:
        """What the pod still lacks before a node can be looked for, and its device claims."""
        namespace = text(pod, "metadata", "namespace")
        for name in volume_claims(pod):
            volume = self._desk.store.get(Key(*kinds.CLAIM, namespace, name))
            if volume is None or is_deleting(volume):
                return f'persistentvolumeclaim "{name}" not found', []
        made = {text(s, "name"): text(s, "resourceClaimName") for s in items(pod, "status", "resourceClaimStatuses")}
        claims: list[Body] = []
        for entry in items(pod, "spec", "resourceClaims"):
            name = text(entry, "resourceClaimName") or made.get(text(entry, "name"), "")
            claim = self._desk.store.get(Key(*kinds.RESOURCE_CLAIM, namespace, name))
            if claim is None:
                return "waiting for resource claim to be created", []
            claims.append(claim)
        return "", claims

    def _devices_on(self, claims: Sequence[Body], node: str, first: Sequence[int]) -> list[list[Share]] | None:
        """The devices of each claim on a node; a claim that has devices already must have them there."""
        if any(allocated_node(claim) not in {"", node} for claim in claims):
            return None
        new = [claim for claim in claims if not allocated_node(claim)]
        classes = {body["metadata"]["name"]: body for body in self._desk.store.list(kinds.DEVICE_CLASS)}
        shares = allocate(self._devices, classes, new, node, first)
        if shares is None:
            return None
        given = iter(shares)
        return [[] if allocated_node(claim) else next(given) for claim in claims]

    def _candidates(self, pod: Body) -> Sequence[Body]:
        """The nodes that the pod's affinity names; all nodes if it names none."""
        named = named_nodes(pod)
        if named is None:
            return self._desk.store.list(kinds.NODE)
        found = (self._desk.store.get(Key(*kinds.NODE, "", name)) for name in sorted(named))
        return [node for node in found if node is not None]

    def _full(self, asks: Mapping[str, int], node: Body) -> str:
        """The first resource of which the node has too little."""
        room = amounts(mapping(node, "status", "allocatable"))
        used = self._book.used(node["metadata"]["name"])
        for resource, asked in asks.items():
            if asked and asked > room.get(resource, 0) - used.get(resource, 0):
                return "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        return ""

    def _load(self, node: Body) -> int:
        """How full the node is, in thousandths of its CPU, memory and pods."""
        room = amounts(mapping(node, "status", "allocatable"))
        used = self._book.used(node["metadata"]["name"])
        shares = [used.get(r, 0) * 1000 // max(1, room.get(r, 0)) for r in ("cpu", "memory", "pods")]
        return sum(shares)

    def _refuse(self, pod: Body, refusals: Mapping[str, int]) -> None:
        nodes = len(self._desk.store.list(kinds.NODE))
        others = nodes - sum(refusals.values())
        counted = dict(refusals)
        if others:
            counted["node(s) didn't match Pod's node affinity/selector"] = others
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counted.items()))
        message = f"0/{nodes} nodes are available: {reasons}." if nodes else "no nodes available to schedule pods"
        self._say(pod, message)

    def _say(self, pod: Body, message: str) -> None:
        new = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._desk.api.replace(with_condition(pod, new, self._desk.instant))


def named_nodes(pod: Body) -> frozenset[str] | None:
    """The nodes that a required affinity names in every one of its terms; None if a term names none."""
    terms = _terms(pod)
    if not terms:
        return None
    found: set[str] = set()
    for term in terms:
        fields = [f for f in items(term, "matchFields") if f.get("operator") == "In"]
        if not fields:
            return None
        found |= set(fields[0].get("values", ()))
    return frozenset(found)


def unfit(pod: Body, node: Body) -> str:
    """The reason why a node may not have a pod, whatever room it has; "" if it may."""
    if not matches(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if at(node, "spec", "unschedulable") and not _tolerated(
        pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    for taint in items(node, "spec", "taints"):
        if taint["effect"] != "PreferNoSchedule" and not _tolerated(pod, taint):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    return "" if holds(node, "Ready") else "node(s) were not ready"


def matches(pod: Body, node: Body) -> bool:
    """Whether node selector and required affinity allow the node; terms are alternatives."""
    labels = labels_of(node)
    if any(labels.get(name) != value for name, value in mapping(pod, "spec", "nodeSelector").items()):
        return False
    terms = _terms(pod)
    return not terms or any(_term_matches(term, node) for term in terms)


def _terms(pod: Body) -> Sequence[Mapping[str, Any]]:
    required = mapping(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return list(items(required, "nodeSelectorTerms"))


def _term_matches(term: Mapping[str, Any], node: Body) -> bool:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return False
    name = {"metadata.name": node["metadata"]["name"]}
    return all(_requirement(r, labels_of(node)) for r in items(term, "matchExpressions")) and all(
        _requirement(r, name) for r in items(term, "matchFields")
    )


def _requirement(requirement: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    value = labels.get(requirement["key"])
    values = list(requirement.get("values") or [])
    match requirement["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not str(value).lstrip("-").isdigit():
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
        case _:
            return False


def _tolerated(pod: Body, taint: Mapping[str, Any]) -> bool:
    for toleration in items(pod, "spec", "tolerations"):
        if toleration.get("effect") not in {None, "", taint["effect"]}:
            continue
        if toleration.get("operator") == "Exists" and toleration.get("key") in {None, "", taint["key"]}:
            return True
        same = toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")
        if toleration.get("operator", "Equal") == "Equal" and same:
            return True
    return False
