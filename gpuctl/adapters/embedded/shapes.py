"""How server-side apply divides the objects gpuctl uses: which lists are keyed, which values are one piece.

A field that is not named here is granular if it is an object, and one piece if it is a list. Source: the `listType`,
`listMapKey`, `mapType` and `structType` markers of the Kubernetes API types, 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from gpuctl.k8s.kinds import Kind


@dataclass(frozen=True, slots=True)
class Atomic:
    """A value that is owned and replaced as one piece."""


@dataclass(frozen=True, slots=True)
class SetOf:
    """A list of distinct scalars, each owned by itself."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A list of objects told apart by `keys`; each key has the default it takes when it is left out."""

    keys: tuple[tuple[str, str | None], ...]
    item: Fields | Atomic


@dataclass(frozen=True, slots=True)
class Fields:
    """An object; fields that are not named take the default division."""

    of: Mapping[str, Shape] = field(default_factory=dict)


Shape: TypeAlias = Atomic | SetOf | Keyed | Fields

ATOMIC = Atomic()
OPEN = Fields()


def _keyed(key: str, item: Fields | Atomic = OPEN) -> Keyed:
    return Keyed(((key, None),), item)


_METADATA = Fields({"finalizers": SetOf(), "ownerReferences": _keyed("uid", ATOMIC)})
_VALUE_FROM = Fields(dict.fromkeys(("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"), ATOMIC))
_CONTAINER = Fields({
    "env": _keyed("name", Fields({"valueFrom": _VALUE_FROM})),
    "ports": Keyed((("containerPort", None), ("protocol", "TCP")), OPEN),
    "volumeMounts": _keyed("mountPath"),
    "volumeDevices": _keyed("devicePath"),
    "resources": Fields({"claims": _keyed("name")}),
})
_NODE_AFFINITY = Fields({"requiredDuringSchedulingIgnoredDuringExecution": ATOMIC})
_POD_SPEC = Fields({
    "containers": _keyed("name", _CONTAINER),
    "initContainers": _keyed("name", _CONTAINER),
    "volumes": _keyed("name"),
    "resourceClaims": _keyed("name"),
    "imagePullSecrets": _keyed("name", ATOMIC),
    "hostAliases": _keyed("ip"),
    "topologySpreadConstraints": Keyed((("topologyKey", None), ("whenUnsatisfiable", None)), OPEN),
    "nodeSelector": ATOMIC,
    "affinity": Fields({"nodeAffinity": _NODE_AFFINITY}),
})
_WORKLOAD = Fields({
    "selector": ATOMIC,
    "template": Fields({"metadata": _METADATA, "spec": _POD_SPEC}),
})
_POD_TEMPLATE = Fields({"metadata": _METADATA, "spec": _POD_SPEC})
_REPLICATED_JOB = Fields({"template": Fields({"metadata": _METADATA, "spec": Fields({"template": _POD_TEMPLATE})})})
_JOB_SET = Fields({"replicatedJobs": _keyed("name", _REPLICATED_JOB)})
_REPLICA = Fields({"template": _POD_TEMPLATE})
_OF_KUBEFLOW = Fields({
    kind: Fields(dict.fromkeys(roles, _REPLICA))
    for kind, roles in (("pytorchReplicaSpecs", ("Master", "Worker")), ("mpiReplicaSpecs", ("Launcher", "Worker")))
})
_RAY_CLUSTER = Fields({"headGroupSpec": _REPLICA})
_RAY_JOB = Fields({"rayClusterSpec": _RAY_CLUSTER, "submitterPodTemplate": _POD_TEMPLATE})
_LEADER_WORKER_SET = Fields({
    "leaderWorkerTemplate": Fields({"leaderTemplate": _POD_TEMPLATE, "workerTemplate": _POD_TEMPLATE})
})
_SERVICE = Fields({"selector": ATOMIC, "ports": Keyed((("port", None), ("protocol", "TCP")), OPEN)})

_SPECS: Mapping[Kind, Fields] = {
    ("v1", "Pod"): _POD_SPEC,
    ("v1", "Service"): _SERVICE,
    ("v1", "PersistentVolumeClaim"): Fields({"selector": ATOMIC, "dataSource": ATOMIC}),
    ("v1", "ResourceQuota"): Fields({"scopeSelector": ATOMIC}),
    ("batch/v1", "Job"): _WORKLOAD,
    ("apps/v1", "Deployment"): _WORKLOAD,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): _JOB_SET,
    ("kubeflow.org/v1", "PyTorchJob"): _OF_KUBEFLOW,
    ("kubeflow.org/v2beta1", "MPIJob"): _OF_KUBEFLOW,
    ("ray.io/v1", "RayJob"): _RAY_JOB,
    ("ray.io/v1", "RayCluster"): _RAY_CLUSTER,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): _LEADER_WORKER_SET,
    ("networking.k8s.io/v1", "Ingress"): OPEN,
    ("networking.k8s.io/v1", "NetworkPolicy"): Fields({"podSelector": ATOMIC}),
}
_STATUS = Fields({"conditions": _keyed("type")})


def shape_of(kind: Kind) -> Fields:
    """The division of a whole object of that kind."""
    return Fields({"metadata": _METADATA, "spec": _SPECS.get(kind, OPEN), "roleRef": ATOMIC, "status": _STATUS})
