"""A job of each kind of another controller, as teams write it: workers with GPUs, and pods without beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from gpuctl import api
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.workload_table import BUILT_IN, Rows, rows_of

TF_JOB: Kind = ("kubeflow.org/v1", "TFJob")
TRAINING_RUN: Kind = ("batch.example.com/v1", "TrainingRun")
DECLARED_KINDS = (TF_JOB, TRAINING_RUN)
"""Kinds that no table of gpuctl has: one of a real project, and one of the tests' own."""
KINDS_OF_CLUSTER = """  workloadKinds:
  - apiVersion: kubeflow.org/v1
    kind: TFJob
    plural: tfjobs
    pods:
    - {at: tfReplicaSpecs.Chief, counts: [replicas], name: chief, makes: [Service]}
    - {at: tfReplicaSpecs.Worker, counts: [replicas], name: worker, makes: [Service]}
    fields: [runPolicy.backoffLimit, runPolicy.cleanPodPolicy, tfReplicaSpecs.Chief.restartPolicy,
             tfReplicaSpecs.Worker.restartPolicy]
    suspend: runPolicy.suspend
    suspended: {condition: Suspended}
    succeeded: {condition: Succeeded}
    failed: {condition: Failed}
    active: [replicaStatuses.Chief.active, replicaStatuses.Worker.active]
  - apiVersion: batch.example.com/v1
    kind: TrainingRun
    plural: trainingruns
    pods:
    - {each: groups, template: pods.template, counts: [pods.count], nameField: name, makes: [Job]}
    fields: [entryPoint]
    suspend: paused
    suspended: {field: phase, values: [Paused]}
    succeeded: {field: phase, values: [Done]}
    failed: {field: phase, values: [Broken]}
    active: [running]
"""
"""As a Cluster declares them."""

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  nodePools:
  - {name: dgx, nodes: [dgx-1], gpusPerNode: 8, gpuMemory: 80Gi, resourcesPerNode: {cpu: 128, memory: 1Ti},
     sharing: device-plugin}
---
apiVersion: gpuctl.dev/v1
kind: Project
metadata: {name: a}
spec: {quota: 8}
"""
"""A cluster of one node, and the project of the jobs."""


CLUSTER_WITH_KINDS = CLUSTER.replace("spec:\n", f"spec:\n{KINDS_OF_CLUSTER}", 1)


def _rows() -> Rows:
    declared = api.compile({"cluster.yaml": CLUSTER_WITH_KINDS}).declared
    assert declared is not None
    return rows_of(declared.cluster.workload_kinds)


ROWS = _rows()
"""All kinds that the tests know, the built-in ones first."""
EVERY_KIND = (*BUILT_IN, *DECLARED_KINDS)


def _pods(name: str, gpus: int = 0, more: str = "", container: str = "main") -> str:
    """A pod template: a worker's with GPUs, or a helper's."""
    asks = "requests: {cpu: 500m, memory: 1Gi}"
    if gpus:
        asks = f"requests: {{cpu: 1, memory: 4Gi}}, limits: {{nvidia.com/gpu: {gpus}}}"
    return f"{{spec: {{{more}containers: [{{name: {container}, image: {name}, resources: {{{asks}}}}}]}}}}"


def manifest(kind: Kind, *, workers: int = 2, gpus: int = 1, restarts: int = 1) -> Any:
    """The object of that kind with so many workers of so many GPUs, and one pod beside them where it has such."""
    return {"apiVersion": kind[0], "kind": kind[1], "spec": yaml.safe_load(_SPECS[kind](workers, gpus, restarts))}


def declared(
    kind: Kind, name: str = "train", project: str = "a", *, more: Mapping[str, Any] | None = None, **sizes: int
) -> str:
    """The job with that manifest, as a document; `more`: further fields of its spec."""
    head = {"apiVersion": "gpuctl.dev/v1", "kind": "Job", "metadata": {"name": name, "project": project}}
    return yaml.safe_dump({**head, "spec": {**(more or {}), "manifest": manifest(kind, **sizes)}}, sort_keys=False)


def _job_set(workers: int, gpus: int, restarts: int) -> str:
    never = "restartPolicy: Never, "
    return f"""
    failurePolicy: {{maxRestarts: {restarts}}}
    successPolicy: {{operator: All, targetReplicatedJobs: [workers]}}
    replicatedJobs:
    - name: driver
      template: {{spec: {{backoffLimit: 0, template: {_pods("driver", more=never)}}}}}
    - name: workers
      template:
        spec: {{parallelism: {workers}, completions: {workers}, backoffLimit: 0,
               template: {_pods("trainer", gpus, never)}}}
    """


def _pytorch_job(workers: int, gpus: int, restarts: int) -> str:
    return f"""
    nprocPerNode: auto
    runPolicy: {{backoffLimit: {restarts}}}
    pytorchReplicaSpecs:
      Master: {{replicas: 1, restartPolicy: Never, template: {_pods("trainer", gpus, container="pytorch")}}}
      Worker: {{replicas: {workers - 1}, restartPolicy: Never,
                template: {_pods("trainer", gpus, container="pytorch")}}}
    """


def _mpi_job(workers: int, gpus: int, restarts: int) -> str:
    return f"""
    slotsPerWorker: {gpus}
    runPolicy: {{cleanPodPolicy: All, backoffLimit: {restarts}}}
    mpiReplicaSpecs:
      Launcher: {{template: {_pods("mpirun")}}}
      Worker: {{replicas: {workers}, template: {_pods("trainer", gpus)}}}
    """


def _ray(workers: int, gpus: int, indent: str = "    ") -> str:
    return f"""
    rayVersion: "2.52.0"
    headGroupSpec: {{rayStartParams: {{dashboard-host: 0.0.0.0}}, template: {_pods("ray")}}}
    workerGroupSpecs:
    - {{groupName: gpu, replicas: {workers}, rayStartParams: {{}}, template: {_pods("ray", gpus)}}}
    """.replace("\n    ", f"\n{indent}")


def _ray_job(workers: int, gpus: int, restarts: int) -> str:
    return f"""
    entrypoint: python train.py
    backoffLimit: {restarts - 1}
    submitterPodTemplate: {_pods("ray")}
    rayClusterSpec:{_ray(workers, gpus, "      ")}
    """


def _leader_worker_set(workers: int, gpus: int, _: int) -> str:
    return f"""
    replicas: 1
    leaderWorkerTemplate:
      size: {workers + 1}
      leaderTemplate: {_pods("router")}
      workerTemplate: {_pods("server", gpus)}
    """


def _tf_job(workers: int, gpus: int, restarts: int) -> str:
    return f"""
    runPolicy: {{backoffLimit: {restarts}, cleanPodPolicy: Running}}
    tfReplicaSpecs:
      Chief: {{replicas: 1, restartPolicy: Never, template: {_pods("chief", container="tensorflow")}}}
      Worker: {{replicas: {workers}, restartPolicy: Never,
                template: {_pods("trainer", gpus, container="tensorflow")}}}
    """


def _training_run(workers: int, gpus: int, _: int) -> str:
    return f"""
    entryPoint: {{module: train, arguments: [--epochs, "3"]}}
    groups:
    - {{name: driver, pods: {{template: {_pods("driver")}}}}}
    - {{name: workers, pods: {{count: {workers}, template: {_pods("trainer", gpus)}}}}}
    """


_SPECS = {
    TF_JOB: _tf_job,
    TRAINING_RUN: _training_run,
    kinds.JOB_SET: _job_set,
    kinds.PYTORCH_JOB: _pytorch_job,
    kinds.MPI_JOB: _mpi_job,
    kinds.RAY_JOB: _ray_job,
    kinds.RAY_CLUSTER: lambda workers, gpus, _: _ray(workers, gpus),
    kinds.LEADER_WORKER_SET: _leader_worker_set,
}


def rendered(kind: Kind) -> Any:
    """What gpuctl writes for the job while it waits."""
    compiled = api.compile({"cluster.yaml": CLUSTER_WITH_KINDS, "train.yaml": declared(kind)})
    assert compiled.declared is not None, compiled.diagnostics
    (found,) = [item.body for item in waiting_manifests(compiled.declared).items if item.ref.kind == kind[1]]
    return found


def let_go(kind: Kind) -> Any:
    """The same once it may have pods."""
    body, row = yaml.safe_load(yaml.safe_dump(rendered(kind))), ROWS[kind]
    above = body
    for step in row.suspension.field[:-1]:
        above = above[step]
    above[row.suspension.field[-1]] = manifest(kind)["spec"]["replicas"] if row.suspension.is_count else False
    return body
