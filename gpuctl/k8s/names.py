"""Every name gpuctl uses in a cluster. Public: changing one orphans what is already there."""

from __future__ import annotations

import re
from hashlib import sha256

FIELD_MANAGER = "gpuctl"
REPORTER = "gpuctl.dev/gpuctl"
"""The controller that gpuctl's Events name as their source."""
SYSTEM_NAMESPACE = "gpuctl-system"
LEASE_NAME = "gpuctl"
"""The Lease in SYSTEM_NAMESPACE that decides which replica may write."""
OVERVIEW_NAME = "gpuctl-overview"
"""The ConfigMap in SYSTEM_NAMESPACE that the leader publishes for people who may not read the whole cluster."""
STATUS_NAME, STATUS_KEY = "gpuctl-status", "status.json"
"""The ConfigMap in SYSTEM_NAMESPACE in which the leader publishes its own state, and its key there."""
CONTROL_NAME = "gpuctl-control"
"""The ConfigMap in SYSTEM_NAMESPACE by which people with rights there freeze a part, or ask to read Git now."""
UTILISATION_NAME = "gpuctl-utilisation"
"""The ConfigMap in SYSTEM_NAMESPACE in which the leader publishes the use of GPUs."""
DASHBOARD_SERVICE = "gpuctl-dashboard"
"""The Service in SYSTEM_NAMESPACE that leads to the leader's dashboard, by an EndpointSlice of the same name."""
PUBLISHED = (OVERVIEW_NAME, STATUS_NAME, UTILISATION_NAME)
"""All ConfigMaps there that are published and are not ledgers. Nothing is decided by them, and a cycle reads none."""
READER_ROLE = "gpuctl-reader"
"""The ClusterRole of people who look at jobs, and the Role in SYSTEM_NAMESPACE for what is published to them."""
OPERATOR_ROLE = "gpuctl-operator"
"""The Role in SYSTEM_NAMESPACE of people who look at all of a cluster: ledgers, status and Lease."""
FREEZER_ROLE = "gpuctl-freezer"
"""The Role in SYSTEM_NAMESPACE of people who may freeze a part and have Git read now."""
HISTORY_ROLE = "gpuctl-history"
"""The Role in SYSTEM_NAMESPACE of people who look at the past of all teams."""
QUOTA_NAME = "gpuctl"
"""The ResourceQuota in each project's namespace."""
PRIORITY_CLASS = "gpuctl-no-preempt"
MAIN_CONTAINER = "main"
GIT_CONTAINER = "git-sync"

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "gpuctl"
CLUSTER_LABEL = "gpuctl.dev/cluster"
PROJECT_LABEL = "gpuctl.dev/project"
JOB_LABEL = "gpuctl.dev/job"
RUN_LABEL = "gpuctl.dev/run"
TYPE_LABEL = "gpuctl.dev/type"
LEDGER_LABEL = "gpuctl.dev/ledger"
MANAGED_LABEL = "gpuctl.dev/managed"
"""On a project's namespace: admission policies select it by this label."""
ADOPT_LABEL = "gpuctl.dev/adopt"
"""On a namespace that an administrator releases: the project that may take it over."""
POD_SECURITY_LABEL = "pod-security.kubernetes.io/"
"""On a namespace, with `enforce`, `enforce-version` or `warn`: the Pod Security level of the API server."""
WORKERS_LABEL = "gpuctl.dev/workers"
"""On a gang's pods: how many workers it was started with."""
WORKER_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Written on a gang's pods by the Job controller."""
INDEX_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
"""On the pods of a gang with a limit for each worker: how often that worker failed. Written by the Job controller."""
SWEEP_LABEL = "gpuctl.dev/sweep"
INDEX_LABEL = "gpuctl.dev/index"
"""On the objects of a job of a sweep: the sweep's name, and the rest of the job's own name."""

SOURCE_ANNOTATION = "gpuctl.dev/source"
REVISION_ANNOTATION = "gpuctl.dev/revision"
QUEUED_AT_ANNOTATION = "gpuctl.dev/queued-at"
REASON_ANNOTATION = "gpuctl.dev/reason"
MESSAGE_ANNOTATION = "gpuctl.dev/message"
"""On the object of a run that waits: why, in a sentence for people. REASON_ANNOTATION says the same as data."""
PLACEMENT_ANNOTATION = "gpuctl.dev/placement"
PORTS_ANNOTATION = "gpuctl.dev/ports"
"""On a run: the ports that its job exposes, however they are reached, with commas between them."""
STARTS_ANNOTATION = "gpuctl.dev/starts"
RAN_ANNOTATION = "gpuctl.dev/ran"
FAILED_STARTS_ANNOTATION = "gpuctl.dev/failed-starts"
STARTING_ANNOTATION = "gpuctl.dev/starting-ms"
PAUSED_FOR_ANNOTATION = "gpuctl.dev/paused-for"
RESERVED_ANNOTATION = "gpuctl.dev/reserved"
"""On the run of an elastic job: the places reserved for workers that it lacks, until other runs have left them."""
CHARGE_ANNOTATION = "gpuctl.dev/charge"
HOST_ANNOTATION = "gpuctl.dev/host"
"""On an Ingress whose declared host is an address, which its rules may not name: where people reach it."""
FROZEN_ANNOTATION = "gpuctl.dev/frozen"
SYNC_ANNOTATION = "gpuctl.dev/sync"
"""On the ConfigMap CONTROL_NAME: what is frozen, by whom and why; and when reading Git was last asked for."""
TEMPLATE_ANNOTATION = "gpuctl.dev/template"
"""On a Job: a digest of the parts of its pod template that the API server does not let change."""
IDLE_SINCE_ANNOTATION = "gpuctl.dev/idle-since"
PROGRESS_ANNOTATION = "gpuctl.dev/progress"
"""How far a pod says its work has got: 0.42 or 42%."""
CHECKPOINTED_ANNOTATION = "gpuctl.dev/checkpointed-at"
"""When a pod says it last wrote a checkpoint."""
PREEMPTIBLE_ANNOTATION = "gpuctl.dev/preemptible"
"""On a run whose job is preemptible although its type is not by default, or the other way round."""
VALUES_ANNOTATION = "gpuctl.dev/values"
"""On the run of a job of a sweep with a matrix: the variables of its combination, for people."""
MIN_WORKERS_ANNOTATION = "gpuctl.dev/min-workers"
"""On the run of an elastic job: the fewest workers with which it goes on. It gives up the highest index first."""
MAX_WORKERS_VARIABLE = "MAX_WORKERS"
"""In the environment of an elastic job's pods: the most workers it goes on with, which is what it asks for."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""In the environment of the pods of a sweep with `completions`: the number of the index."""
GRACE_VARIABLE = "GPUCTL_PAUSE_GRACE_SECONDS"
"""In the environment of a job's pods: how long they have from SIGTERM to their end, if that is declared."""
QUOTA_ANNOTATION = "gpuctl.dev/quota"
"""On a project's namespace: its claims by quota domain, for people who see only the cluster."""
DEPARTMENT_ANNOTATION = "gpuctl.dev/department"

PROVENANCE_ANNOTATIONS = frozenset({SOURCE_ANNOTATION, REVISION_ANNOTATION})
"""Written together with another change, never alone: a commit that only moves lines writes nothing."""

TOLERATED_TAINT_KEYS = ("gpuctl.dev/managed", "nvidia.com/gpu")
"""Taints of GPU nodes, with any value and effect NoSchedule, that keep other pods away; gpuctl's pods tolerate them."""

GPU_RESOURCE = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX = "nvidia.com/mig-"
"""Followed by a profile: a device plugin of strategy `mixed` calls its slices so."""
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
"""Written by GPU feature discovery, in MiB."""
DRA_DRIVER = "hami-core-gpu.project-hami.io"
DRA_DEVICE_CLASS = "hami-core-gpu.project-hami.io"
NVIDIA_DRIVER = "gpu.nvidia.com"
NVIDIA_GPU_CLASS = "gpu.nvidia.com"
NVIDIA_MIG_CLASS = "mig.nvidia.com"
CLAIMED_DEVICES = ".deviceclass.resource.k8s.io/devices"
"""Follows a DeviceClass: the name by which a ResourceQuota counts devices claimed from that class."""

HAMI_SCHEDULER = "hami-scheduler"
HAMI_MEMORY_PERCENT_RESOURCE = "nvidia.com/gpumem-percentage"
HAMI_MEMORY_RESOURCE = "nvidia.com/gpumem"
"""In MiB."""
HAMI_CORES_RESOURCE = "nvidia.com/gpucores"
"""In percent."""
HAMI_USE_ANNOTATION = "nvidia.com/use-gpuuuid"
HAMI_MODE_ANNOTATION = "nvidia.com/vgpu-mode"
HAMI_MODE = "hami-core"
HAMI_REGISTER_ANNOTATION = "hami.io/node-nvidia-register"
"""On a node, written by HAMi's device plugin: its GPUs as JSON."""
HAMI_CORDON_ANNOTATION = "hami.io/device-cordon"
"""On a node: uuids of GPUs that take no new work."""
HAMI_NODE_ANNOTATION = "hami.io/vgpu-node"
HAMI_DEVICES_ANNOTATION = "hami.io/vgpu-devices-allocated"
"""On a pod, written by HAMi's scheduler: the node it chose, and the devices it gave the pod."""

RESERVED_ENV_NAMES = frozenset({
    "NVIDIA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "CUDA_DEVICE_SM_LIMIT", "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_OVERSUBSCRIBE", "CUDA_TASK_PRIORITY", "GPU_CORE_UTILIZATION_POLICY",
})  # fmt: skip
RESERVED_ENV_PREFIXES = ("CUDA_DEVICE_MEMORY_LIMIT",)
"""Variables by which a container would see GPUs it was not given, use more of one than it was given, or take precedence
over another team on one. Source: Project-HAMi/HAMi-core, src/multiprocess.
"""

_SHARD = re.compile(r"ledger-[0-9]+-of-[0-9]+")
_DIGEST = re.compile(r"[0-9a-f]{8}")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

CLUSTER_LEDGER = ""
"""Stands for a project in the name of the cluster's own ledger: no project can have this name."""


def ledger_name(cluster: str, project: str) -> str:
    """The ConfigMap in SYSTEM_NAMESPACE that holds a project's ledger, or the cluster's own for CLUSTER_LEDGER."""
    return f"ledger.{cluster}.{project}" if project else f"ledger.{cluster}"


def ledger_owner(name: str) -> tuple[str, str] | None:
    """The cluster and project in a ledger's name; neither contains a dot. None for another name."""
    role, *whose = name.split(".")
    return (whose[0], "".join(whose[1:])) if role == "ledger" and len(whose) in {1, 2} else None


def shard_owner(name: str) -> tuple[str, str] | None:
    """The cluster and project in a shard's name; None for another name."""
    role, _, whose = name.partition(".")
    return ledger_owner(f"ledger.{whose}") if _SHARD.fullmatch(role) else None


def shard_name(cluster: str, project: str, number: int, count: int) -> str:
    """The ConfigMap of one of a ledger's `count` shards, numbered from 1; no ledger has such a name."""
    return f"ledger-{number}-of-{count}." + ledger_name(cluster, project).removeprefix("ledger.")


def run_name(job: str, digest: str) -> str:
    """The name of the objects of one run of a job: its Job or Deployment, its claim template, a gang's Service.

    The job's name is cut so that a worker's host name, `<run>-<index>`, stays a DNS label.
    """
    return f"{job[:48].rstrip('-.')}-{digest}"


def names_a_run(name: str) -> bool:
    """Whether a run of some job may have the name."""
    job, _, digest = name.rpartition("-")
    return bool(job) and _DIGEST.fullmatch(digest) is not None


def is_run_name(name: str, job: str) -> bool:
    """Whether a run of the job may have this name."""
    return names_a_run(name) and f"{name.rpartition('-')[0]}-" == run_name(job, "")


def service_name(name: str) -> str:
    """A job's or a run's name as a Service may have it: a DNS label that begins with a letter; different names stay
    so."""
    if _SERVICE.fullmatch(name):
        return name
    return f"s-{sha256(name.encode()).hexdigest()[:8]}-{name.replace('.', '-')[:48].rstrip('-')}"


def claim_name(job: str, index: int) -> str:
    """The name of the PersistentVolumeClaim of a job's n-th `newClaim` volume; the same for all its runs."""
    return f"pvc-{job}-{index}"
