"""Small clusters of gpuctl on a real API server, driven by hand; each has its own nodes and namespaces.

Several are on the one server at the same time, so each test is also a neighbour of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

from controlplane.server import ControlPlane, node, pauses
from unattended import abandon, account_token, within

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.app.cycle import CycleContext, CycleReport, cycle
from gpuctl.app.object_cache import ObjectCache
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import labels_of, ref_of, text, uid
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, ClusterState
from gpuctl.observe import ObserveCache, observe

WITHIN_S = 180.0
GONE = 404
MERGE = "application/merge-patch+json"


class Town:
    """One cluster of gpuctl on the server: two nodes of two GPUs, one project `a`, and cycles by hand."""

    def __init__(self, plane: ControlPlane, account: Account, name: str) -> None:
        self.plane = plane
        self.name = name
        self.token = account.token
        self.prefix = f"gpu-{name}-"
        self.more_of_a = ""
        self.more_of_pool = ""
        self.more_of_cluster = ""
        self.sharing = "device-plugin"
        self.gpu_memory = "32Gi"
        self.jobs: dict[str, str] = {}
        self.context = CycleContext(object_cache=account.object_cache, clock=SystemClock())
        self._observed = ObserveCache()
        self.cluster = account.cluster
        for each in ("n1", "n2"):
            plane.call("POST", "/api/v1/nodes", node(f"{name}-{each}", gpus=2, labels={"town": name}))
        within(WITHIN_S, self._has_usable_nodes)

    def _has_usable_nodes(self) -> bool:
        """Whether both nodes can be used: a new node is tainted for a moment, also after it is ready."""
        mine = [node for node in self.state().nodes if node.labels.get("town") == self.name]
        return sum(node.usable for node in mine) == 2

    @property
    def namespace(self) -> str:
        """The namespace of the jobs."""
        return f"{self.prefix}a"

    def declared(self) -> Declared:
        head = "apiVersion: gpuctl.dev/v1\nkind: "
        pool = (
            f"{{name: p, selector: {{matchLabels: {{town: {self.name}}}}}, nodes: [{self.name}-n1, {self.name}-n2], "
            f"gpusPerNode: 2, gpuMemory: {self.gpu_memory}, gpuProduct: Tesla, sharing: {self.sharing}"
            f"{self.more_of_pool}}}"
        )
        more = f"  namespacePrefix: {self.prefix}\n  ingress: {{host: gpus.example.com, className: nginx}}\n"
        more += self.more_of_cluster
        files = {
            "cluster.yaml": f"{head}Cluster\nmetadata: {{name: {self.name}}}\nspec:\n  nodePools: [{pool}]\n{more}",
            "a.yaml": f"{head}Project\nmetadata: {{name: a}}\nspec: {{quota: 4{self.more_of_a}}}\n",
        }
        for job, spec in self.jobs.items():
            said = spec if "manifest:" in spec else f"{{image: x{spec}}}"
            files[f"{job}.yaml"] = f"{head}Job\nmetadata: {{name: {job}, project: a}}\nspec: {said}\n"
        return _compiled(tuple(files.items()))

    def cycle(self) -> CycleReport:
        report = cycle(self.declared(), self.context)
        self.context = replace(self.context, rejected=report.rejected)
        return report

    def until(self, holds: Callable[[], Any]) -> Any:
        """Run cycles until `holds` returns something true. Returns that."""
        end, waits = time.monotonic() + WITHIN_S, pauses()
        while True:
            report = self.cycle()
            found = holds()
            if found:
                return found
            if time.monotonic() > end:
                raise AssertionError(([o.error for o in report.faults], self.phases(), report.schedule.decisions))
            time.sleep(next(waits))

    def state(self) -> ClusterState:
        self.context.object_cache.refresh()
        return observe(self.context.object_cache.objects(), self.declared().tenancy, self._observed)

    def phases(self) -> dict[str, str]:
        return {run.job.name: str(run.phase) for run in self.state().runs}

    def comes_to(self, **phases: str) -> None:
        self.until(lambda: self.phases() == phases)

    def ended(self) -> dict[str, str]:
        return {run.job.name: run.state for book in self.state().ledgers.values() for run in book.finished.values()}

    def live(self, kind: str, job: str) -> list[tuple[ObjectRef, Body]]:
        """A job's objects of a kind that gpuctl sees, by name, each as the server has it."""
        (of_kind,) = [each for each in kinds.OBSERVED if each[1] == kind]
        listed = self.plane.call("GET", collection(of_kind, self.namespace))["items"]
        bodies = [{**body, "apiVersion": of_kind[0], "kind": kind} for body in listed]
        whole: dict[ObjectRef, Body] = {ref_of(body): body for body in bodies}
        return [
            (ref, whole.get(ref, body))
            for ref, body in sorted(self.state().live.items())
            if ref.kind == kind and ref.namespace == self.namespace and labels_of(body).get(names.JOB_LABEL) == job
        ]

    def one(self, kind: str, job: str) -> Any:
        ((_, body),) = self.live(kind, job)
        return body

    def mark(self, job: str, worker: str = "", **notes: str) -> None:
        """Tell KWOK what happens to a job's pods, or to one worker's."""
        body = {"metadata": {"annotations": {f"test/{key.replace('_', '-')}": note for key, note in notes.items()}}}
        for ref, pod in self.live("Pod", job):
            if worker not in {"", labels_of(pod).get(names.WORKER_INDEX_LABEL)}:
                continue
            path = f"/api/v1/namespaces/{self.namespace}/pods/{ref.name}"
            self.plane.call("PATCH", path, body, media=MERGE)

    def remove(self, ref: ObjectRef, body: Body) -> None:
        """Delete an object as a person does, whatever a controller writes to it meanwhile."""
        self.cluster.delete(ref, uid(body), "")

    def collect(self, pod: ObjectRef) -> None:
        """Do sooner what the server's garbage collector does with pods of a node that is gone."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            self.plane.call("PATCH", f"{path}/status", {"status": {"phase": "Failed"}}, media=MERGE)
            self.plane.call("DELETE", path, {"gracePeriodSeconds": 0})
        except HTTPError as error:
            error.close()
            if error.code != GONE:
                raise

    def tear_down(self) -> None:
        """Remove the town, also its ledgers: each gpuctl that begins reads all ledgers."""
        ledgers = f"labelSelector={quote(f'{names.CLUSTER_LABEL}={self.name}')}"
        self.plane.call("DELETE", f"/api/v1/namespaces/gpuctl-system/configmaps?{ledgers}")
        for ref in list(self.state().live):
            with suppress(HTTPError):  # a test has removed it
                if ref.kind == "Namespace" and ref.name.startswith(self.prefix):
                    abandon(self.plane, ref.name)
                elif ref.kind == "Node" and ref.name.startswith(f"{self.name}-"):
                    self.plane.call("DELETE", f"/api/v1/nodes/{ref.name}")


@lru_cache(maxsize=8)
def _compiled(files: tuple[tuple[str, str], ...]) -> Declared:
    """The declarations in the files. Cost: compiling takes longer than a look, and each look of a waiting test asks for
    them."""
    compiled = compile_tree(
        SourceTree(cluster_dir="c", files={f"c/{p}": SourceFile(content=t.encode()) for p, t in files})
    )
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


@dataclass(frozen=True)
class Account:
    """The account of the installed gpuctl, and what it has seen of the cluster."""

    token: str
    cluster: KubernetesCluster
    object_cache: ObjectCache


@contextmanager
def account_on(plane: ControlPlane) -> Iterator[Account]:
    """gpuctl's account on the control plane where it is installed; it has no other rights."""
    token = account_token(plane)
    connection = connect(str(plane.write_kubeconfig(plane.folder / "town.kubeconfig", token)))
    with closing(connection), closing(KubernetesCluster(connection)) as cluster:
        yield Account(token, cluster, ObjectCache(cluster))


@contextmanager
def town_on(plane: ControlPlane, test: str, account: Account | None = None) -> Iterator[Town]:
    """A town for the time of a test, named after it. `account`: one that has seen the cluster already.

    Cost: to see the cluster for the first time takes two requests for each of forty kinds, more than most tests take.
    """
    with nullcontext(account) if account else account_on(plane) as known:
        made = Town(plane, known, f"t{sha256(test.encode()).hexdigest()[:10]}")
        yield made
        made.tear_down()


def running(pod: Body) -> bool:
    """Whether a pod is up."""
    return text(pod, "status", "phase") == "Running"
