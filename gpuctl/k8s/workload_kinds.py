"""Workloads of other controllers that a job may be, as data: where their pods, their numbers and their states are.

One row a kind. From it follow what of an object is allowed (`gpuctl/compile/manifest_v1.py`), how many workers it has,
how it is suspended (`gpuctl/k8s/workloads.py`) and when it has ended (`gpuctl/observe/workloads.py`). A kind is a row
here and one in `kinds.KINDS`; the shape of its fields for the embedded cluster is in
`gpuctl/adapters/embedded/shapes.py`.
Source: jobset.x-k8s.io/v1alpha2, release 0.12: api/jobset/v1alpha2/jobset_types.go, pkg/webhooks/jobset_webhook.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuctl.k8s import kinds
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import condition, flag, items, mapping, number, text
from gpuctl.k8s.requests import Requests, requests_of
from gpuctl.model.state import Body

Path = tuple[str, ...]
Allowed = Mapping[str, Any]
"""Fields that may be written, by name: what is allowed below each, or ANY. Of a list, of each of its entries."""

ANY: Allowed = {}
"""Whatever the field takes."""


def _any(*fields: str) -> dict[str, Allowed]:
    return dict.fromkeys(fields, ANY)


METADATA: Allowed = _any("labels", "annotations")
_USER = _any("runAsUser", "runAsGroup", "runAsNonRoot")
_SECCOMP = {"seccompProfile": _any("type")}
_HTTP = _any("path", "port", "scheme", "httpHeaders")
_ASKED = {"exec": _any("command"), "httpGet": _HTTP, "tcpSocket": _any("port")}
_PROBE = {
    **_ASKED,
    "grpc": _any("port", "service"),
    **_any("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
}
_ITEMS = {"items": _any("key", "path", "mode"), **_any("defaultMode", "optional")}
CONTAINER: Allowed = {
    **_any("name", "image", "imagePullPolicy", "command", "args", "workingDir", "stdin", "stdinOnce", "tty"),
    **_any("terminationMessagePath", "terminationMessagePolicy", "restartPolicy"),
    "env": {
        **_any("name", "value"),
        "valueFrom": _any("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"),
    },
    "envFrom": {**_any("prefix"), "secretRef": _any("name", "optional"), "configMapRef": _any("name", "optional")},
    "ports": _any("name", "containerPort", "protocol"),
    "resources": _any("requests", "limits"),
    "volumeMounts": _any("name", "mountPath", "subPath", "readOnly"),
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
    "lifecycle": {"postStart": _ASKED, "preStop": {**_ASKED, "sleep": _any("seconds")}},
    "securityContext": {
        **_USER, **_SECCOMP, **_any("allowPrivilegeEscalation", "readOnlyRootFilesystem"),
        "capabilities": _any("add", "drop"),
    },
}  # fmt: skip
"""What a container of such a workload may have: no more than one of a job of gpuctl's own fields."""
POD: Allowed = {
    "containers": CONTAINER,
    "initContainers": CONTAINER,
    "volumes": {
        **_any("name"),
        "emptyDir": _any("medium", "sizeLimit"),
        "configMap": {**_any("name"), **_ITEMS},
        "secret": {**_any("secretName"), **_ITEMS},
        "persistentVolumeClaim": _any("claimName", "readOnly"),
        "nfs": _any("server", "path", "readOnly"),
        "hostPath": _any("path", "type"),
        "downwardAPI": ANY,
    },
    "securityContext": {**_USER, **_SECCOMP, **_any("fsGroup", "fsGroupChangePolicy", "supplementalGroups")},
    "imagePullSecrets": _any("name"),
    "hostAliases": _any("ip", "hostnames"),
    **_any("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "hostname", "subdomain"),
    **_any("enableServiceLinks", "setHostnameAsFQDN"),
}
"""What the spec of its pods may have. Where they run, as which account and in which order is gpuctl's to say."""
_TEMPLATE: Allowed = {"metadata": METADATA, "spec": POD}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSets:
    """Pods of one template for each entry of a list of the spec: `template` and `counts` lead on from an entry.

    There are as many pods at a time as the product of `counts` says, each of which is 1 where it is absent. `jobs`: the
    number of Jobs that they are of. `name`: what the entry is called. `numbers`: the counts by which its
    pods are called, the largest of each. `marked`: metadata of what is made of an entry besides its pods.
    """

    entries: Path
    template: Path
    counts: tuple[Path, ...]
    jobs: Path
    name: Path
    numbers: tuple[tuple[Path, ...], ...]
    marked: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """What gpuctl knows of a kind.

    `allowed`: the fields of its spec that a job may write. `suspend`: the field that stops it. `succeeded`, `failed`:
    conditions that say how it ended. `suspended`: the condition by which its controller says that the field was heard.
    `restarts`: how often it has begun anew by itself.
    """

    kind: Kind
    allowed: Allowed
    sets: PodSets
    suspend: Path
    suspended: str
    succeeded: str
    failed: str
    restarts: Path


JOBSET = WorkloadKind(
    kind=kinds.JOB_SET,
    allowed={
        "replicatedJobs": {
            **_any("name", "groupName", "replicas"),
            "dependsOn": _any("name", "status"),
            "template": {
                "metadata": METADATA,
                "spec": {
                    **_any("parallelism", "completions", "completionMode", "backoffLimit", "backoffLimitPerIndex"),
                    **_any("maxFailedIndexes", "podFailurePolicy", "podReplacementPolicy", "successPolicy"),
                    "template": _TEMPLATE,
                },
            },
        },
        "network": _any("enableDNSHostnames", "publishNotReadyAddresses"),
        "successPolicy": _any("operator", "targetReplicatedJobs"),
        "failurePolicy": {
            **_any("maxRestarts", "restartStrategy"),
            "rules": _any("name", "action", "onJobFailureReasons", "targetReplicatedJobs"),
        },
        "startupPolicy": _any("startupPolicyOrder"),
        "coordinator": _any("replicatedJob", "jobIndex", "podIndex"),
    },
    sets=PodSets(
        entries=("replicatedJobs",),
        template=("template", "spec", "template"),
        counts=(("replicas",), ("template", "spec", "parallelism")),
        jobs=("replicas",),
        name=("name",),
        numbers=((("replicas",),), (("template", "spec", "parallelism"), ("template", "spec", "completions"))),
        marked=(("template", "metadata"),),
    ),
    suspend=("spec", "suspend"),
    suspended="Suspended",
    succeeded="Completed",
    failed="Failed",
    restarts=("status", "restarts"),
)

WORKLOAD_KINDS: Mapping[Kind, WorkloadKind] = {row.kind: row for row in (JOBSET,)}
"""The kinds of other controllers that a job may be."""


class PodSet(NamedTuple):
    """Pods of one template: how many at a time, and what each requests."""

    template: Body
    pods: int
    requests: Requests


def row_of(body: Body) -> WorkloadKind | None:
    """The row of an object's kind; None for any other kind."""
    return WORKLOAD_KINDS.get((text(body, "apiVersion"), text(body, "kind")))


def pod_sets(row: WorkloadKind, spec: Body) -> Iterator[PodSet]:
    """The pods that a spec makes, in its order. Cost: linear in the containers."""
    for entry in items(spec, *row.sets.entries):
        pods = 1
        for path in row.sets.counts:
            pods *= max(0, number(entry, *path, default=1))
        template = mapping(entry, *row.sets.template)
        yield PodSet(template, pods, requests_of(mapping(template, "spec")))


class WorkerSum(NamedTuple):
    """What a workload is to the engine: equal workers, and pods without GPUs beside them.

    `worker` is what one worker is charged: the most that any of them requests, and CPU and memory of all the `helpers`,
    the pods without GPUs, for any of its nodes may get those. `beside`: what the helpers request together.
    """

    workers: int
    worker: Requests
    helpers: int = 0
    beside: Requests = Requests()

    @property
    def pods(self) -> int:
        """All of its pods at a time."""
        return self.workers + self.helpers


def sum_of(row: WorkloadKind, spec: Body) -> WorkerSum:
    """The workers of a spec: its pods with GPUs, or all where none has any."""
    sets = list(pod_sets(row, spec))
    ask = [each for each in sets if each.requests.gpus] or sets
    worker, beside = Requests(), Requests()
    for each in ask:
        worker = worker.either(each.requests)
    helpers = 0
    for each in sets if len(ask) < len(sets) else ():
        if not each.requests.gpus:
            helpers += each.pods
            beside = beside.plus(each.requests.times(each.pods))
    return WorkerSum(sum(each.pods for each in ask), worker.plus(beside), helpers, beside)


def jobs_of(row: WorkloadKind, spec: Body) -> int:
    """How many Jobs the workload's controller makes."""
    return sum(max(0, number(entry, *row.sets.jobs, default=1)) for entry in items(spec, *row.sets.entries))


def is_suspended(row: WorkloadKind, body: Body) -> bool:
    """Whether it is to have no pods."""
    return flag(body, *row.suspend)


def is_at_rest(row: WorkloadKind, body: Body) -> bool:
    """Whether it is suspended, and its controller has not resumed it, or has suspended it again."""
    if not is_suspended(row, body):
        return False
    told = [entry for entry in items(body, "status", "conditions") if entry.get("type") == row.suspended]
    return all(entry.get("status") == "True" for entry in told) and not any(
        number(each, "active") for each in items(body, "status", "replicatedJobsStatus")
    )


def end_of(row: WorkloadKind, body: Body) -> tuple[Body, Body]:
    """The conditions that say that it succeeded, and that it failed; empty where it did not."""
    return condition(body, row.succeeded), condition(body, row.failed)
