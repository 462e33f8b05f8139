"""Two teams on one small cluster: `good` minds its own business, `evil` writes whatever it may in its own namespace.

Everything goes the ordinary way (compile, observe, schedule, render, plan, apply) on the embedded cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster, merge
from gpuctl.app.cycle import CycleContext, CycleReport, converge
from gpuctl.app.object_cache import ObjectCache
from gpuctl.compile import compile_tree
from gpuctl.k8s import names
from gpuctl.k8s.objects import text
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, ClusterState
from gpuctl.observe import observe

ZERO_MS = 1_596_000_000_000
HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
POOL = "{name: p, nodes: [n1, n2], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}"

Files = Mapping[str, str]


def cluster_of(more: str = "", pool: str = POOL) -> str:
    return f"{HEAD}Cluster\nmetadata: {{name: one}}\nspec:\n  nodePools: [{pool}]\n{more}"


def project(name: str, quota: int) -> str:
    return f"{HEAD}Project\nmetadata: {{name: {name}}}\nspec: {{quota: {quota}}}\n"


def job(name: str, owner: str, gpus: int = 1, more: str = "") -> str:
    return f"{HEAD}Job\nmetadata: {{name: {name}, project: {owner}}}\nspec: {{image: x, gpus: {gpus}{more}}}\n"


def declared(files: Files) -> Declared:
    contents = {f"c/{path}": SourceFile(content=text.encode()) for path, text in files.items()}
    compiled = compile_tree(SourceTree(cluster_dir="c", files=contents))
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


TOWN: Files = {
    "cluster.yaml": cluster_of(),
    "good.yaml": project("good", 4),
    "evil.yaml": project("evil", 4),
    "g1.yaml": job("g1", "good", 2),
    "g2.yaml": job("g2", "good", 1, ", type: inference"),
    "e1.yaml": job("e1", "evil", 1),
    "e2.yaml": job("e2", "evil", 1, ", type: inference"),
}


class Neighbours:
    """The cluster, and what either team sees of it."""

    def __init__(self, files: Files = TOWN) -> None:
        self.clock = VirtualClock(ZERO_MS)
        self.cluster = EmbeddedCluster(self.clock)
        self.declared = declared(files)
        self.cluster.provide(self.declared.cluster.pools)
        self.context = CycleContext(
            object_cache=ObjectCache(self.cluster), clock=self.clock, settle=self.cluster.settle
        )
        self.reports: list[CycleReport] = []
        self._whole = ObjectCache(self.cluster, keep=lambda body: body)
        self.live_s(60)

    def declare(self, files: Files) -> None:
        """Another commit."""
        self.declared = declared(files)

    def enforce(self) -> CycleReport:
        """Cycles until nothing is left to write. A damaged object must not make one fail: whatever is raised is."""
        self.reports += converge(self.declared, self.context)
        return self.reports[-1]

    def live_s(self, seconds: int) -> None:
        """The loop, once a second."""
        for _ in range(seconds):
            self.enforce()
            self.clock.advance_to(self.clock.now_ms() + 1000)
            self.cluster.settle()
        self.enforce()

    def state(self) -> ClusterState:
        self.context.object_cache.refresh()
        return observe(self.context.object_cache.objects(), self.declared.tenancy)

    def decisions_about(self, owner: str) -> dict[str, tuple[str, str]]:
        decided = self.reports[-1].schedule.decisions
        return {d.job.name: (type(d).__name__, d.reason.code) for d in decided if d.job.project == owner}

    def life_of(self, owner: str) -> dict[str, object]:
        """All that a team would notice of its jobs, its ledger and its pods."""
        state = self.state()
        runs = {
            run.job.name: (run.digest, run.phase, run.starts, run.placement, run.paused_for, run.queued_at_ms)
            for run in state.runs
            if run.job.project == owner
        }
        ledger = next(book for book in state.ledgers.values() if book.project == owner)
        pods = {text(body, "metadata", "uid") for _, body in self.pods(f"gpu-{owner}")}
        return {"runs": runs, "ended": dict(ledger.finished), "pods": pods, "decided": self.decisions_about(owner)}

    def objects(self) -> Mapping[ObjectRef, Body]:
        """As the API server has them, for people to edit."""
        self._whole.refresh()
        return self._whole.objects().objects

    def pods(self, namespace: str) -> list[tuple[ObjectRef, Body]]:
        live = self.objects()
        return [(ref, live[ref]) for ref in sorted(live) if ref.kind == "Pod" and ref.namespace == namespace]

    def run_object(self, name: str, owner: str) -> Body:
        """The Job or Deployment of a declared job's run."""
        digest = next(j.digest for j in self.declared.jobs if j.id.name == name)
        (found,) = [
            body
            for ref, body in self.objects().items()
            if ref.kind in {"Job", "Deployment"}
            and (ref.namespace, ref.name) == (f"gpu-{owner}", names.run_name(name, digest))
        ]
        return found

    def edit(self, body: Body, change: Callable[[dict[str, Any]], object]) -> None:
        """`kubectl edit`."""
        new = copy.deepcopy(dict(body))
        change(new)
        del new["metadata"]["resourceVersion"]
        self.cluster.update(new)

    def edit_unchecked(self, body: Body, change: Callable[[dict[str, Any]], object]) -> None:
        """As `edit`, for what an API server checks and would not take."""
        new = copy.deepcopy(dict(body))
        change(new)
        with self.cluster._turn():
            owners = merge.updated(body, new, "kubectl")
            self.cluster._store.write(merge.with_owners(new, owners, body, self.clock.now_ms()))

    def booked(self) -> dict[str, int]:
        """GPUs of each node that foreign pods hold, by the books."""
        return {node.name: sum(node.foreign_gpu_milli) // 1000 for node in self.state().nodes}


def pod(name: str, namespace: str, gpus: int = 0, node: str = "n1", **meta: Any) -> Body:
    """A pod that a person makes, bound by name as one that a scheduler has placed."""
    limits = {names.GPU_RESOURCE: str(gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]},
    }
