"""The kinds of other controllers that a job may be: one row for each kind.

A Cluster may declare further rows in `workloadKinds`: `rows_of` gives both, and they are read alike.

A built-in kind has a row here and one in `kinds.KINDS`; the shape of its fields for the embedded cluster is in
`gpuctl/adapters/embedded/shapes.py`. tests/jobset and tests/workloads check each row against the kind's definition.
Sources: JobSet 0.12, api/jobset/v1alpha2/jobset_types.go, pkg/webhooks/jobset_webhook.go. Training Operator 1.9,
pkg/apis/kubeflow.org/v1, pkg/controller.v1/common/job.go, pkg/webhooks/pytorch. MPI Operator 0.8,
pkg/apis/kubeflow/validation, pkg/controller/mpi_job_controller.go. KubeRay 1.6, controllers/ray/rayjob_controller.go,
raycluster_controller.go, utils/validation.go. LeaderWorkerSet 0.9, pkg/controllers, pkg/webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gpuctl.k8s import kinds
from gpuctl.k8s.manifest_fields import ANY, METADATA, TEMPLATE, any_of
from gpuctl.model.workload_kind import (
    MOST_PODS,
    Allowed,
    Count,
    Kind,
    Made,
    Path,
    PodSets,
    Suspension,
    Told,
    WorkloadKind,
)

Rows: TypeAlias = Mapping[Kind, WorkloadKind]
"""The kinds of other controllers that a job may be in a cluster."""

BY_REPLICAS = Suspension(("spec", "replicas"), is_count=True, active=(("status", "replicas"),))
"""How a Deployment is stopped, and any kind that is scaled in the same way."""
OF_JOB = Suspension(("spec", "suspend"), active=(("status", "active"),), begun=("status", "startTime"))
"""How a Job is stopped. Source: pkg/controller/job, Kubernetes 1.36: the controller clears `startTime` when it has
acted on the suspension. Until the pods are deleted, which may fail at first, the server allows no change of their
template."""

_REPLICAS = Count(("replicas",))
_PARALLELISM: Path = ("template", "spec", "parallelism")

JOBSET = WorkloadKind(
    kind=kinds.JOB_SET,
    allowed={
        "replicatedJobs": {
            **any_of("name", "groupName", "replicas"),
            "dependsOn": any_of("name", "status"),
            "template": {
                "metadata": METADATA,
                "spec": {
                    **any_of("parallelism", "completions", "completionMode", "backoffLimit", "backoffLimitPerIndex"),
                    **any_of("maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy", "successPolicy"),
                    "template": TEMPLATE,
                },
            },
        },
        "network": any_of("enableDNSHostnames", "publishNotReadyAddresses"),
        "successPolicy": any_of("operator", "targetReplicatedJobs"),
        "failurePolicy": {
            **any_of("maxRestarts", "restartStrategy"),
            "rules": any_of("name", "action", "onJobFailureReasons", "targetReplicatedJobs"),
        },
        "startupPolicy": any_of("startupPolicyOrder"),
        "coordinator": any_of("replicatedJob", "jobIndex", "podIndex"),
    },
    pods=(
        PodSets(
            entries=("replicatedJobs",),
            is_list=True,
            template=("template", "spec", "template"),
            counts=(_REPLICAS, Count(_PARALLELISM)),
            name=("name",),
            numbers=((_REPLICAS.path,), (_PARALLELISM, ("template", "spec", "completions"))),
            made=(Made(kinds.JOB, (_REPLICAS,)),),
            marked=(("template", "metadata"),),
            needed=True,
            waits=("dependsOn",),
            restarts=("OnFailure", "Never"),
        ),
    ),
    suspension=Suspension(
        ("spec", "suspend"), told=Told("Suspended"), active=(("status", "replicatedJobsStatus", "active"),)
    ),
    succeeded=Told("Completed"),
    failed=Told("Failed"),
    restarts=("status", "restarts"),
    in_order={("startupPolicy", "startupPolicyOrder"): "InOrder"},
)

_REPLICA: Allowed = {**any_of("replicas", "restartPolicy"), "template": TEMPLATE}
_RUN_POLICY: Allowed = any_of("backoffLimit", "cleanPodPolicy")
_CLEAN: Path = ("runPolicy", "cleanPodPolicy")
"""What happens to pods that still run at the end. Without it, they would hold their GPUs for ever."""
_CLEANED = ("Running", "All")
_TYPED: Path = ("status", "replicaStatuses")

PYTORCH_JOB = WorkloadKind(
    kind=kinds.PYTORCH_JOB,
    allowed={
        "nprocPerNode": ANY,
        "runPolicy": _RUN_POLICY,
        "pytorchReplicaSpecs": {"Master": _REPLICA, "Worker": _REPLICA},
    },
    pods=tuple(
        PodSets(
            entries=("pytorchReplicaSpecs", role),
            template=("template",),
            counts=(Count(("replicas",), most=most),),
            called=role.lower(),
            numbers=((("replicas",),),),
            made=(Made(kinds.SERVICE, (_REPLICAS,)),),
        )
        for role, most in (("Master", 1), ("Worker", MOST_PODS))
    ),
    suspension=Suspension(
        ("spec", "runPolicy", "suspend"),
        told=Told("Suspended"),
        active=tuple((*_TYPED, role, "active") for role in ("Master", "Worker")),
    ),
    succeeded=Told("Succeeded"),
    failed=Told("Failed"),
    choices={
        _CLEAN: _CLEANED,
        ("pytorchReplicaSpecs", "Master", "restartPolicy"): ("OnFailure", "Never", "ExitCode", "Always"),
        ("pytorchReplicaSpecs", "Worker", "restartPolicy"): ("OnFailure", "Never", "ExitCode", "Always"),
    },
    domains=("kubeflow.org",),
    usual={_CLEAN: "Running"},
    container="pytorch",
)

MPI_JOB = WorkloadKind(
    kind=kinds.MPI_JOB,
    allowed={
        **any_of("slotsPerWorker", "mpiImplementation", "sshAuthMountPath", "launcherCreationPolicy"),
        **any_of("runLauncherAsWorker"),
        "runPolicy": _RUN_POLICY,
        "mpiReplicaSpecs": {"Launcher": _REPLICA, "Worker": _REPLICA},
    },
    pods=(
        PodSets(
            entries=("mpiReplicaSpecs", "Launcher"),
            template=("template",),
            counts=(Count(("replicas",), most=1),),
            called="launcher",
            made=(Made(kinds.JOB), Made(kinds.SERVICE)),
            needed=True,
        ),
        PodSets(
            entries=("mpiReplicaSpecs", "Worker"),
            template=("template",),
            counts=(Count(("replicas",), usual=0),),
            called="worker",
            numbers=((("replicas",),),),
        ),
    ),
    suspension=Suspension(
        ("spec", "runPolicy", "suspend"),
        told=Told("Suspended"),
        active=tuple((*_TYPED, role, "active") for role in ("Launcher", "Worker")),
    ),
    succeeded=Told("Succeeded"),
    failed=Told("Failed"),
    choices={
        _CLEAN: _CLEANED,
        ("mpiImplementation",): ("OpenMPI", "Intel", "MPICH"),
        ("launcherCreationPolicy",): ("AtStartup", "WaitForWorkersReady"),
        ("mpiReplicaSpecs", "Launcher", "restartPolicy"): ("OnFailure", "Never"),
        ("mpiReplicaSpecs", "Worker", "restartPolicy"): ("Never", "OnFailure"),
    },
    domains=("kubeflow.org",),
    usual={_CLEAN: "Running"},
    mounts=(("sshAuthMountPath",),),
    in_order={("launcherCreationPolicy",): "WaitForWorkersReady"},
)

_GROUP: Allowed = {"rayStartParams": ANY, "template": TEMPLATE}
_RAY: Allowed = {
    "rayVersion": ANY,
    "headGroupSpec": _GROUP,
    "workerGroupSpecs": {**_GROUP, **any_of("groupName", "replicas", "numOfHosts")},
}
"""Not allowed: an autoscaler, which changes counts, and `minReplicas` and `maxReplicas`, which bound them; a Service or
Ingress beyond the usual; labels over gpuctl's; Redis with a pod of its own to clean up."""


def _ray_pods(*above: str, made: tuple[Made, ...] = ()) -> tuple[PodSets, ...]:
    """The sets of pods of a RayCluster's spec, which is at the path `above`."""
    head = PodSets(
        entries=(*above, "headGroupSpec"), template=("template",), called="head", made=made, needed=True
    )  # fmt: skip
    workers = PodSets(
        entries=(*above, "workerGroupSpecs"),
        is_list=True,
        template=("template",),
        counts=(Count(("replicas",), usual=0), Count(("numOfHosts",))),
        name=("groupName",),
    )
    return head, workers


RAY_CLUSTER = WorkloadKind(
    kind=kinds.RAY_CLUSTER,
    allowed=_RAY,
    pods=_ray_pods(),
    suspension=Suspension(("spec", "suspend"), told=Told(field=("status", "state"), values=("suspended",))),
    succeeded=None,
    failed=None,
    domains=("ray.io",),
    longest_name=53,
)

_DEPLOYMENT_STATUS: Path = ("status", "jobDeploymentStatus")

RAY_JOB = WorkloadKind(
    kind=kinds.RAY_JOB,
    allowed={
        **any_of("entrypoint", "entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "runtimeEnvYAML"),
        **any_of("metadata", "backoffLimit", "shutdownAfterJobFinishes"),
        "submitterConfig": any_of("backoffLimit"),
        "submitterPodTemplate": TEMPLATE,
        "rayClusterSpec": _RAY,
    },
    pods=(
        *_ray_pods("rayClusterSpec", made=(Made(kinds.RAY_CLUSTER),)),
        PodSets(
            entries=("submitterPodTemplate",), template=(), called="submitter", made=(Made(kinds.JOB),), needed=True,
            restarts=("Never", "OnFailure"),
        ),
    ),
    suspension=Suspension(("spec", "suspend"), told=Told(field=_DEPLOYMENT_STATUS, values=("Suspended",))),
    succeeded=Told(field=_DEPLOYMENT_STATUS, values=("Complete",), since=("status", "endTime")),
    failed=Told(field=_DEPLOYMENT_STATUS, values=("Failed", "ValidationFailed"), since=("status", "endTime")),
    restarts=("status", "failed"),
    choices={("shutdownAfterJobFinishes",): (True,)},
    domains=("ray.io",),
    usual={("shutdownAfterJobFinishes",): True, ("submitterPodTemplate", "spec", "restartPolicy"): "Never"},
    longest_name=47,
)  # fmt: skip

_LEADER: Path = ("leaderWorkerTemplate", "leaderTemplate")
_SIZE: Path = ("leaderWorkerTemplate", "size")

LEADER_WORKER_SET = WorkloadKind(
    kind=kinds.LEADER_WORKER_SET,
    allowed={
        **any_of("replicas", "startupPolicy"),
        "networkConfig": any_of("subdomainPolicy"),
        "leaderWorkerTemplate": {
            **any_of("size", "restartPolicy"),
            "leaderTemplate": TEMPLATE,
            "workerTemplate": TEMPLATE,
            "subGroupPolicy": any_of("subGroupPolicyType", "subGroupSize"),
        },
    },
    pods=(
        PodSets(template=_LEADER, counts=(_REPLICAS,), called="leader", restarts=("Always",)),
        PodSets(
            template=("leaderWorkerTemplate", "workerTemplate"),
            counts=(_REPLICAS, Count(_SIZE, but_one=_LEADER)),
            called="worker",
            made=(Made(kinds.STATEFUL_SET), Made(kinds.STATEFUL_SET, (_REPLICAS,)), Made(kinds.SERVICE, (_REPLICAS,))),
            needed=True,
            restarts=("Always",),
        ),
    ),
    suspension=BY_REPLICAS,
    succeeded=None,
    failed=None,
    choices={
        ("startupPolicy",): ("LeaderCreated", "LeaderReady"),
        ("networkConfig", "subdomainPolicy"): ("Shared", "UniquePerReplica"),
        ("leaderWorkerTemplate", "restartPolicy"): ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"),
        ("leaderWorkerTemplate", "subGroupPolicy", "subGroupPolicyType"): ("LeaderWorker", "LeaderExcluded"),
    },
    in_order={("startupPolicy",): "LeaderReady"},
    longest_name=47,
)

BUILT_IN: Rows = {row.kind: row for row in (JOBSET, PYTORCH_JOB, MPI_JOB, RAY_JOB, RAY_CLUSTER, LEADER_WORKER_SET)}
"""The kinds that every cluster knows."""


def rows_of(declared: Sequence[WorkloadKind]) -> Rows:
    """The built-in kinds, and those that a Cluster declares."""
    return {**BUILT_IN, **{row.kind: row for row in declared}} if declared else BUILT_IN
