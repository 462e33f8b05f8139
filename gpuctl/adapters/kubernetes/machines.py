"""The nodes of a real cluster: its administrators provide them, or KWOK for a demonstration or a benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.adapters.kubernetes.requests import Request, encoded
from gpuctl.app.ports import ClusterUnavailable, Conflict
from gpuctl.diag.wording import all_of, message
from gpuctl.k8s.kinds import NODE, RESOURCE_SLICE
from gpuctl.k8s.objects import annotations_of, condition, items, ref_of
from gpuctl.model.declared import NodePool
from gpuctl.model.state import Body
from gpuctl.model.workload_kind import WorkloadKind

KWOK_ANNOTATION = "kwok.x-k8s.io/node"
READY_WITHIN_MS = 30_000
_POLL_S = 0.05
_MOST_NAMED = 3

Blueprint = Callable[[Sequence[NodePool]], Sequence[Body]]
"""Makes the declared inventory's nodes and the objects that belong to them."""


class StandingMachines:
    """Implements the port Machines where gpuctl does not provide the nodes."""

    def provide(self, pools: Sequence[NodePool]) -> None:
        """Do nothing: the cycle reports how the nodes differ from the declared inventory."""

    def define(self, declared: Sequence[WorkloadKind]) -> None:
        """Do nothing: a kind is served if its controller is installed."""


class KwokMachines:
    """Implements the port Machines on a cluster whose only nodes, with their pods, are simulated by KWOK."""

    def __init__(self, cluster: KubernetesCluster, blueprint: Blueprint) -> None:
        self._cluster = cluster
        self._blueprint = blueprint

    def provide(self, pools: Sequence[NodePool]) -> None:
        """Create the declared nodes, their device classes and slices, and wait until the nodes are ready.

        If all nodes and slices exist, nothing is created: gpuctl's own account has no right to. Raises
        ClusterUnavailable: GPU7095 the cluster has other nodes, GPU7096 the nodes do not become ready.
        """
        wanted = [played(body) for body in self._blueprint(pools)]
        self._refuse_others({ref_of(body).name for body in wanted if body["kind"] == NODE[1]})
        for body in wanted if self._missing(wanted) else ():
            kind = (body["apiVersion"], body["kind"])
            request = Request(
                verb="create", kind=kind, method="POST", path=collection(kind, ""), what=f"create {ref_of(body)}",
                body=encoded(body),
            )  # fmt: skip
            try:
                self._cluster.requests.send(request)
            except Conflict:
                continue  # it exists from an earlier run
        self._await_ready()

    def define(self, declared: Sequence[WorkloadKind]) -> None:
        """Do nothing: a kind is served if its controller is installed."""

    def _missing(self, wanted: Sequence[Body]) -> bool:
        """Whether a node or a slice is missing; classes are created before these."""
        refs = {kind: {ref_of(body) for body in wanted if body["kind"] == kind[1]} for kind in (NODE, RESOURCE_SLICE)}
        there = {ref_of(body) for kind, some in refs.items() if some for body in self._cluster.list(kind).items}
        return any(some - there for some in refs.values())

    def _refuse_others(self, ours: set[str]) -> None:
        others = [
            ref_of(body).name
            for body in self._cluster.list(NODE).items
            if ref_of(body).name not in ours or KWOK_ANNOTATION not in annotations_of(body)
        ]
        if others:
            shown = [*others[:_MOST_NAMED], *(["others"] if len(others) > _MOST_NAMED else [])]
            raise ClusterUnavailable("GPU7095", message("GPU7095", {"nodes": all_of(shown)}))

    def _await_ready(self) -> None:
        until = time.monotonic() + READY_WITHIN_MS / 1000
        while True:
            lost = [body for body in self._cluster.list(NODE).items if not _takes_pods(body)]
            if not lost:
                return
            if time.monotonic() > until:
                raise ClusterUnavailable("GPU7096", message("GPU7096", {"node": ref_of(lost[0]).name}))
            time.sleep(_POLL_S)


def _takes_pods(node: Body) -> bool:
    """Whether the node is ready and controllers have seen it: a new node is tainted until then."""
    return bool(condition(node, "Ready")) and not any(items(node, "spec", "taints"))


def played(body: Body) -> Body:
    """A node, a class or a slice as it is created: without what another server added, nodes with KWOK's mark."""
    meta = {key: value for key, value in body["metadata"].items() if key in {"name", "labels", "annotations"}}
    if body["kind"] == NODE[1]:
        meta["annotations"] = {**meta.get("annotations", {}), KWOK_ANNOTATION: "fake"}
    return {**body, "metadata": meta}
