"""What single fields of other controllers' objects may say, and what follows from the kind for the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from workloads.declarations import CLUSTER, declared

from gpuctl import api
from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.job import Job

WRONG: Mapping[str, tuple[Kind, tuple[str | int, ...], object, str]] = {
    "PyTorch's master is one": (kinds.PYTORCH_JOB, ("pytorchReplicaSpecs", "Master", "replicas"), 2, "GPU2018"),
    "pods that stay hold GPUs": (kinds.PYTORCH_JOB, ("runPolicy", "cleanPodPolicy"), "None", "GPU2018"),
    "a policy that PyTorch's controller has not": (
        kinds.PYTORCH_JOB, ("pytorchReplicaSpecs", "Worker", "restartPolicy"), "Sometimes", "GPU2018"),
    "a count that changes by itself": (kinds.PYTORCH_JOB, ("elasticPolicy",), {"maxReplicas": 8}, "GPU3101"),
    "a deadline of its own": (kinds.MPI_JOB, ("runPolicy", "activeDeadlineSeconds"), 60, "GPU3101"),
    "MPI's launcher is one": (kinds.MPI_JOB, ("mpiReplicaSpecs", "Launcher", "replicas"), 2, "GPU2018"),
    "MPI's workers are counted": (kinds.MPI_JOB, ("mpiReplicaSpecs", "Worker", "replicas"), 0, "GPU2005"),
    "no folder that gives GPUs": (
        kinds.MPI_JOB, ("sshAuthMountPath",), "/var/run/nvidia-container-devices/all", "GPU2018"),
    "an implementation that is none": (kinds.MPI_JOB, ("mpiImplementation",), "LAM", "GPU2018"),
    "Ray's groups are counted": (kinds.RAY_CLUSTER, ("workerGroupSpecs", 0, "replicas"), 0, "GPU2005"),
    "Ray takes no more by itself": (kinds.RAY_CLUSTER, ("enableInTreeAutoscaling",), True, "GPU3101"),
    "Ray takes no less by itself": (kinds.RAY_CLUSTER, ("workerGroupSpecs", 0, "minReplicas"), 0, "GPU3101"),
    "a label that KubeRay obeys": (
        kinds.RAY_CLUSTER, ("headGroupSpec", "template", "metadata"), {"labels": {"ray.io/group": "a"}}, "GPU2018"),
    "a RayJob ends with its cluster": (kinds.RAY_JOB, ("shutdownAfterJobFinishes",), False, "GPU2018"),
    "a submitter that runs again for ever": (
        kinds.RAY_JOB, ("submitterPodTemplate", "spec", "restartPolicy"), "Always", "GPU2018"),
    "a submitter that is not counted": (kinds.RAY_JOB, ("submitterPodTemplate",), None, "GPU2005"),
    "a StatefulSet's pods always run again": (
        kinds.LEADER_WORKER_SET, ("leaderWorkerTemplate", "workerTemplate", "spec", "restartPolicy"), "Never",
        "GPU2018"),
    "workers that are made after a leader with GPUs": (
        kinds.LEADER_WORKER_SET, ("startupPolicy",), "LeaderReady", ""),
}  # fmt: skip
"""A field, its value, and the code that it has; none: it is allowed where the leader has no GPUs."""


def codes(document: str) -> list[str]:
    return [each.code for each in api.compile({"cluster.yaml": CLUSTER, "train.yaml": document}).diagnostics]


def changed(kind: Kind, path: tuple[str | int, ...], value: object) -> str:
    document = yaml.safe_load(declared(kind))
    place = document["spec"]["manifest"]["spec"]
    for step in path[:-1]:
        place = place[step] if isinstance(step, int) else place.setdefault(step, {})
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return yaml.safe_dump(document)


@pytest.mark.parametrize("name", WRONG)
def test_a_field_that_is_wrong_is_a_mistake(name: str) -> None:
    kind, path, value, code = WRONG[name]
    assert codes(changed(kind, path, value)) == ([code] if code else [])


def test_a_group_whose_workers_wait_for_a_leader_with_gpus_is_a_mistake() -> None:
    document = yaml.safe_load(changed(kinds.LEADER_WORKER_SET, ("startupPolicy",), "LeaderReady"))
    template = document["spec"]["manifest"]["spec"]["leaderWorkerTemplate"]
    template["leaderTemplate"] = template["workerTemplate"]
    assert codes(yaml.safe_dump(document)) == ["GPU3104"]


def test_without_a_template_of_its_own_a_leader_is_one_of_the_workers() -> None:
    document = yaml.safe_load(declared(kinds.LEADER_WORKER_SET, workers=3))
    spec = document["spec"]["manifest"]["spec"]
    del spec["leaderWorkerTemplate"]["leaderTemplate"]
    spec["replicas"] = 2
    job = job_of(yaml.safe_dump(document))
    assert (job.workers, job.container.manifest and job.container.manifest.pods) == (8, 8)


def job_of(document: str) -> Job:
    compiled = api.compile({"cluster.yaml": CLUSTER, "train.yaml": document})
    assert compiled.declared is not None, compiled.diagnostics
    (job,) = compiled.declared.jobs
    return job


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind[1])
def test_what_never_ends_is_a_service_that_makes_no_way_unless_it_says_so(kind: Kind) -> None:
    ends = BUILT_IN[kind].ends
    job = job_of(declared(kind))
    assert (job.type, job.preemptible) == (("training", True) if ends else ("inference", False))
    other: dict[str, Any] = {"type": "inference" if ends else "training"}
    assert codes(declared(kind, more=other)) == ["GPU2019"]
    assert codes(declared(kind, more={"type": "interactive"})) == []
    assert job_of(declared(kind, more={"preemptible": True})).preemptible
