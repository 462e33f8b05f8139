"""A real cluster with four jobs, three of which run, for the commands that look at one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from controlplane.server import ControlPlane, node

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.files import read_tree
from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.app.cycle import CycleContext, cycle
from gpuctl.app.object_cache import ObjectCache
from gpuctl.compile import compile_tree

WITHIN_S = 180.0
CLUSTER = """\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: seen}
spec:
  nodePools:
  - {name: seen, selector: {matchLabels: {gpuctl.dev/pool: seen}}, nodes: [seen-1, seen-2], gpusPerNode: 4,
     resourcesPerNode: {cpu: 80, memory: 512Gi}, sharing: device-plugin}
  namespacePrefix: seen-
---
apiVersion: gpuctl.dev/v1
kind: Department
metadata: {name: research}
spec: {quota: 4}
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: team-s}
spec: {quota: 4, limit: 6, department: research}
---
{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: train, project: team-s},
 spec: {image: train, gpus: 1, resources: {cpu: 8, memory: 64Gi}}}
---
{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: gang, project: team-s}, spec: {image: mpi, gpus: 1, workers: 2}}
---
{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: notebook, project: team-s},
 spec: {image: jupyter, type: interactive, preemptible: true, gpus: 1}}
---
{apiVersion: gpuctl.dev/v1, kind: Job, metadata: {name: large, project: team-s}, spec: {image: train, gpus: 4}}
"""
NAMESPACE = "seen-team-s"
OTHERS_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "stranger"},
    "spec": {
        "nodeName": "seen-2",
        "containers": [{"name": "c", "image": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}],
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A real cluster with four jobs, three of which run, and the folder that declares them."""

    plane: ControlPlane
    folder: Path

    @property
    def where(self) -> tuple[str, str]:
        return ("--kubeconfig", str(self.plane.kubeconfig))

    def enforce(self) -> None:
        declared = compile_tree(read_tree(str(self.folder))).declared
        assert declared is not None
        with (
            closing(connect(str(self.plane.kubeconfig))) as connection,
            closing(KubernetesCluster(connection)) as cluster,
        ):
            context = CycleContext(object_cache=ObjectCache(cluster), clock=SystemClock())
            until = monotonic() + WITHIN_S
            while monotonic() < until:
                report = cycle(declared, context)
                if report.settled and sum(run.phase == "Running" for run in report.state.runs) == 3:
                    return
                sleep(0.1)
        raise AssertionError("the jobs do not come to run")

    def job(self, name: str) -> dict[str, Any]:
        listed = self.plane.call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")["items"]
        (found,) = [job for job in listed if job["metadata"]["labels"]["gpuctl.dev/job"] == name]
        return dict(found)


@contextmanager
def stage_on(control_plane: ControlPlane, folder: Path) -> Iterator[Stage]:
    """The cluster, gone at the end. `folder`: where its declarations are written."""
    folder = folder / "clusters" / "seen"
    folder.mkdir(parents=True)
    (folder / "cluster.yaml").write_text(CLUSTER)
    for name in ("seen-1", "seen-2"):
        control_plane.call("POST", "/api/v1/nodes", node(name, gpus=4, labels={"gpuctl.dev/pool": "seen"}))
    control_plane.call("POST", "/api/v1/namespaces/default/pods", OTHERS_POD)
    made = Stage(plane=control_plane, folder=folder)
    made.enforce()
    yield made
    control_plane.remove_namespaces([NAMESPACE, "gpuctl-system"])
    control_plane.call("DELETE", "/api/v1/namespaces/default/pods/stranger?gracePeriodSeconds=0")
    for name in ("seen-1", "seen-2"):
        control_plane.call("DELETE", f"/api/v1/nodes/{name}")
