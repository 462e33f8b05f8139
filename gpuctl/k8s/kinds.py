"""Every kind of object that gpuctl uses in a cluster, and what gpuctl does with it: one table, `KINDS`.

Paths, rights, what is watched and the order of deletion derive from it, so no other list of kinds can miss a new one.
The kinds of a Cluster's `workloadKinds` are not in the table; gpuctl uses no others outside of it, so a kind that is
not in the table is declared (`is_declared`). app/kept.py says which fields of others' objects are read.
tests/unit/k8s/test_kinds.py checks that every rendered kind has all it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuctl.k8s.names import MANAGED_BY, MANAGED_BY_LABEL, PUBLISHED, SYSTEM_NAMESPACE

Kind = tuple[str, str]
"""(apiVersion, kind)."""

_RBAC = "rbac.authorization.k8s.io/v1"
_RESOURCE = "resource.k8s.io/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"

NAMESPACE: Kind = ("v1", "Namespace")
NODE: Kind = ("v1", "Node")
POD: Kind = ("v1", "Pod")
SERVICE: Kind = ("v1", "Service")
CONFIG_MAP: Kind = ("v1", "ConfigMap")
CLAIM: Kind = ("v1", "PersistentVolumeClaim")
RESOURCE_QUOTA: Kind = ("v1", "ResourceQuota")
SECRET: Kind = ("v1", "Secret")
SERVICE_ACCOUNT: Kind = ("v1", "ServiceAccount")
CORE_EVENT: Kind = ("v1", "Event")
JOB: Kind = ("batch/v1", "Job")
DEPLOYMENT: Kind = ("apps/v1", "Deployment")
STATEFUL_SET: Kind = ("apps/v1", "StatefulSet")
JOB_SET: Kind = ("jobset.x-k8s.io/v1alpha2", "JobSet")
PYTORCH_JOB: Kind = ("kubeflow.org/v1", "PyTorchJob")
MPI_JOB: Kind = ("kubeflow.org/v2beta1", "MPIJob")
RAY_JOB: Kind = ("ray.io/v1", "RayJob")
RAY_CLUSTER: Kind = ("ray.io/v1", "RayCluster")
LEADER_WORKER_SET: Kind = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
AUTOSCALER: Kind = ("autoscaling/v2", "HorizontalPodAutoscaler")
REPLICA_SET: Kind = ("apps/v1", "ReplicaSet")
INGRESS: Kind = ("networking.k8s.io/v1", "Ingress")
NETWORK_POLICY: Kind = ("networking.k8s.io/v1", "NetworkPolicy")
ROLE: Kind = (_RBAC, "Role")
ROLE_BINDING: Kind = (_RBAC, "RoleBinding")
CLUSTER_ROLE: Kind = (_RBAC, "ClusterRole")
CLUSTER_ROLE_BINDING: Kind = (_RBAC, "ClusterRoleBinding")
PRIORITY_CLASS: Kind = ("scheduling.k8s.io/v1", "PriorityClass")
CLAIM_TEMPLATE: Kind = (_RESOURCE, "ResourceClaimTemplate")
RESOURCE_CLAIM: Kind = (_RESOURCE, "ResourceClaim")
RESOURCE_SLICE: Kind = (_RESOURCE, "ResourceSlice")
DEVICE_CLASS: Kind = (_RESOURCE, "DeviceClass")
LEASE: Kind = ("coordination.k8s.io/v1", "Lease")
EVENT: Kind = ("events.k8s.io/v1", "Event")
ENDPOINT_SLICE: Kind = ("discovery.k8s.io/v1", "EndpointSlice")
ADMISSION_POLICY: Kind = (_ADMISSION, "ValidatingAdmissionPolicy")
ADMISSION_POLICY_BINDING: Kind = (_ADMISSION, "ValidatingAdmissionPolicyBinding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The objects of a kind that are read: those of one namespace, with a label, by their fields. Empty: all."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindInfo:
    """What gpuctl does with a kind.

    - `plural`: its name in the API server's paths and in RBAC rules.
    - `observed`: a cycle reads its objects, those in `scope`.
    - `writes`: the verbs used besides those of a cycle's reading.
    - `own_namespace`: it is used only in gpuctl's own namespace.
    - `prune_rank`: the order in which objects that are no longer declared are deleted, from 1; 0 for a kind that gpuctl
      never renders.
    - `needed_for`: what does not work on a server without it.
    - `of_others`: it belongs to another controller, or is made by one: a server may lack it, and gpuctl may have no
      rights on it until it is installed anew.
    - `of_engine`: it belongs to another engine, and is read only by a gpuctl that leaves decisions to that engine.

    Raises ValueError if a kind is deleted without a rank.
    """

    plural: str
    namespaced: bool = True
    observed: bool = False
    scope: Scope = Scope()
    writes: tuple[str, ...] = ()
    own_namespace: bool = False
    prune_rank: int = 0
    needed_for: str = "gpuctl itself"
    of_others: bool = False
    of_engine: str = ""

    def __post_init__(self) -> None:
        """Refuse a row whose objects would be deleted in no defined order."""
        if "delete" in self.writes and not self.prune_rank:
            raise ValueError(f"{self.plural} are deleted and have no prune_rank")


_READ = ("list", "watch")
_APPLY = ("create", "patch")
"""Server-side apply is a patch; if the object does not exist yet, the server requires the right to create too."""
_WRITE = (*_APPLY, "delete")
_LABELLED = Scope(label_selector=f"{MANAGED_BY_LABEL}={MANAGED_BY}")
_UNPUBLISHED = Scope(
    namespace=SYSTEM_NAMESPACE, field_selector=",".join(f"metadata.name!={name}" for name in PUBLISHED)
)
"""Ledgers. The other ConfigMaps there are published by the leader for people, and must not wake the loop."""
_DRA = "pools with `sharing: dra`"


def _of_others(plural: str, prune_rank: int) -> KindInfo:
    return KindInfo(
        plural=plural, observed=True, writes=_WRITE, prune_rank=prune_rank, needed_for="jobs with `manifest`",
        of_others=True,
    )  # fmt: skip


def _of_engine(engine: str, plural: str, prune_rank: int, *, namespaced: bool = False) -> KindInfo:
    return KindInfo(
        plural=plural, namespaced=namespaced, scope=_LABELLED, writes=_WRITE, prune_rank=prune_rank,
        needed_for=f"`--target {engine}`", of_engine=engine,
    )  # fmt: skip


_KUEUE = "kueue.x-k8s.io/v1beta2"
KUEUE_WORKLOAD: Kind = (_KUEUE, "Workload")

KINDS: Mapping[Kind, KindInfo] = {
    NAMESPACE: KindInfo(plural="namespaces", namespaced=False, observed=True, writes=_WRITE, prune_rank=19),
    NODE: KindInfo(plural="nodes", namespaced=False, observed=True),
    JOB: KindInfo(plural="jobs", observed=True, writes=_WRITE, prune_rank=4),
    JOB_SET: _of_others("jobsets", 6),
    PYTORCH_JOB: _of_others("pytorchjobs", 7),
    MPI_JOB: _of_others("mpijobs", 8),
    RAY_JOB: _of_others("rayjobs", 9),
    RAY_CLUSTER: _of_others("rayclusters", 10),
    LEADER_WORKER_SET: _of_others("leaderworkersets", 11),
    POD: KindInfo(plural="pods", observed=True),
    SERVICE: KindInfo(plural="services", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=2),
    CONFIG_MAP: KindInfo(
        plural="configmaps", observed=True, scope=_UNPUBLISHED, writes=_WRITE, own_namespace=True, prune_rank=20,
    ),
    # All claims, also those that people made: deleting a project's namespace deletes the data of every claim in it.
    CLAIM: KindInfo(plural="persistentvolumeclaims", observed=True, writes=_WRITE, prune_rank=13),
    RESOURCE_QUOTA: KindInfo(plural="resourcequotas", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=15),
    DEPLOYMENT: KindInfo(
        plural="deployments", observed=True, writes=_WRITE, prune_rank=5, needed_for="jobs of `type: inference`",
    ),
    AUTOSCALER: KindInfo(
        plural="horizontalpodautoscalers", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=3,
        needed_for="jobs with `scaling`",
    ),
    REPLICA_SET: KindInfo(plural="replicasets", observed=True),
    # All of them: if a tenant took a label off, the run's pods would count as foreign, and its GPUs twice.
    STATEFUL_SET: KindInfo(
        plural="statefulsets", observed=True, needed_for="jobs that are LeaderWorkerSets", of_others=True,
    ),
    INGRESS: KindInfo(
        plural="ingresses", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=1,
        needed_for="ports exposed `via: ingress`",
    ),
    NETWORK_POLICY: KindInfo(
        plural="networkpolicies", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=16,
        needed_for="`security.reachableFrom`",
    ),
    ROLE_BINDING: KindInfo(plural="rolebindings", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=14),
    PRIORITY_CLASS: KindInfo(
        plural="priorityclasses", namespaced=False, observed=True, scope=_LABELLED, writes=_APPLY, prune_rank=17,
        needed_for="all jobs",
    ),
    CLAIM_TEMPLATE: KindInfo(
        plural="resourceclaimtemplates", observed=True, scope=_LABELLED, writes=_WRITE, prune_rank=12, needed_for=_DRA,
    ),
    RESOURCE_CLAIM: KindInfo(plural="resourceclaims", observed=True, needed_for=_DRA),
    RESOURCE_SLICE: KindInfo(plural="resourceslices", namespaced=False, observed=True, needed_for=_DRA),
    DEVICE_CLASS: KindInfo(plural="deviceclasses", namespaced=False, observed=True, needed_for=_DRA),
    (_KUEUE, "LocalQueue"): _of_engine("kueue", "localqueues", 18, namespaced=True),
    (_KUEUE, "ClusterQueue"): _of_engine("kueue", "clusterqueues", 21),
    (_KUEUE, "Cohort"): _of_engine("kueue", "cohorts", 22),
    (_KUEUE, "ResourceFlavor"): _of_engine("kueue", "resourceflavors", 23),
    (_KUEUE, "WorkloadPriorityClass"): _of_engine("kueue", "workloadpriorityclasses", 24),
    ("scheduling.run.ai/v2", "Queue"): _of_engine("kai", "queues", 25),
    LEASE: KindInfo(
        plural="leases", writes=("get", "create", "update"), own_namespace=True,
        needed_for="more than one replica of gpuctl",
    ),
    EVENT: KindInfo(plural="events", writes=_APPLY, needed_for="events beside the objects"),
    CORE_EVENT: KindInfo(
        plural="events", writes=("list",), needed_for="why pods do not start, where events alone say it",
    ),
    ENDPOINT_SLICE: KindInfo(plural="endpointslices"),  # one is written, with `install --dashboard`
    KUEUE_WORKLOAD: KindInfo(plural="workloads"),
    SECRET: KindInfo(plural="secrets"),
    SERVICE_ACCOUNT: KindInfo(plural="serviceaccounts"),
    ROLE: KindInfo(plural="roles"),
    CLUSTER_ROLE: KindInfo(plural="clusterroles", namespaced=False),
    CLUSTER_ROLE_BINDING: KindInfo(plural="clusterrolebindings", namespaced=False),
    ADMISSION_POLICY: KindInfo(plural="validatingadmissionpolicies", namespaced=False),
    ADMISSION_POLICY_BINDING: KindInfo(plural="validatingadmissionpolicybindings", namespaced=False),
}  # fmt: skip
"""One row for each kind, in the order in which they are read. The last rows are kinds that `gpuctl install` makes or
that are known only by name.

Jobs are read before pods: of a pod that a Job's status counts, the object is then known too.
"""

OBSERVED: tuple[Kind, ...] = tuple(kind for kind, info in KINDS.items() if info.observed)
"""The kinds that a cycle reads. A server that lacks one of them has no objects of it."""

OF_OTHERS: tuple[Kind, ...] = tuple(kind for kind, info in KINDS.items() if info.of_others)
"""Kinds of other controllers, and kinds that are read because of them."""

RENDERED: frozenset[Kind] = frozenset(kind for kind, info in KINDS.items() if info.prune_rank)
"""Kinds whose objects may be gpuctl's own."""

OF_DEVICES: frozenset[Kind] = frozenset(
    kind for kind, info in KINDS.items() if info.needed_for == _DRA and not info.writes
)
"""Kinds that say which devices exist and which pods hold them, for pools with `sharing: dra`."""

CLUSTER_SCOPED: frozenset[Kind] = frozenset(kind for kind, info in KINDS.items() if not info.namespaced)

SCOPES: Mapping[Kind, Scope] = {kind: info.scope for kind, info in KINDS.items() if info.scope != Scope()}
"""Kinds of which a cycle reads only a part: the ledgers, and objects with our label. It reads all of the others."""

WITH_PEOPLES: Mapping[Kind, Scope] = {kind: scope for kind, scope in SCOPES.items() if scope != _LABELLED}
"""The scopes of commands that show what a cycle would write: they also read objects that people made, which may be in
its place. A controller does not: it would get each change of all Services and autoscalers of the cluster."""

VERBS: Mapping[Kind, tuple[str, ...]] = {
    kind: tuple(sorted({*info.writes, *(_READ if info.observed else ())}))
    for kind, info in sorted(KINDS.items())
    if (info.observed or info.writes) and not info.of_engine
}
"""The verbs that the controller uses on each kind, sorted."""


READ_VERBS = _READ

OF_ENGINES: tuple[Kind, ...] = tuple(kind for kind, info in KINDS.items() if info.of_engine)
"""Kinds of other engines."""


_OF_DECLARED_RANK = 11
"""The prune rank of kinds that a Cluster declares: with the last of the built-in workloads."""


def is_declared(kind: Kind) -> bool:
    """Whether a Cluster declares the kind."""
    return kind not in KINDS


def is_of_others(kind: Kind) -> bool:
    """Whether the kind belongs to another controller: a server may lack it, and gpuctl may have no rights on it."""
    return is_declared(kind) or KINDS[kind].of_others


def in_words(kind: Kind) -> str:
    """A kind with its API version, as messages name it."""
    return f"{kind[1]} of {kind[0]}"


def is_decisive(kind: Kind) -> bool:
    """Whether gpuctl must see the objects of a kind before it can decide anything about a cluster.

    A kind of which gpuctl reads only its own objects is not decisive: they are written, and no decision follows from
    them. Exception: without autoscalers, a service keeps the workers that it has. Without claims, no namespace is
    deleted.
    """
    return not (is_of_others(kind) or kind in OF_DEVICES or kind == CLAIM or KINDS[kind].scope == _LABELLED)


def may_be_own(kind: Kind) -> bool:
    """Whether an object of the kind may be gpuctl's own."""
    return is_declared(kind) or kind in RENDERED


def prune_rank(kind: Kind) -> int:
    """The order in which objects of a kind that are no longer declared are deleted."""
    return _OF_DECLARED_RANK if is_declared(kind) else KINDS[kind].prune_rank


def of_engine(engine: str) -> tuple[Kind, ...]:
    """The kinds of another engine that gpuctl reads and writes if that engine decides."""
    return tuple(kind for kind, info in KINDS.items() if info.of_engine == engine)


def verbs_of_engine(kind: Kind) -> tuple[str, ...]:
    """The verbs that the controller uses on a kind of another engine, sorted."""
    return tuple(sorted({*KINDS[kind].writes, *_READ}))


def group_of(kind: Kind) -> str:
    """The API group; "" for the core group."""
    return kind[0].rpartition("/")[0]


def for_people(namespace: str = "") -> Mapping[Kind, Scope]:
    """The scopes of a person's commands; they read what is published together with the ledgers.

    `namespace`: only this namespace, for kinds that have one; the ledgers stay where they are.
    """
    namespaced = KINDS.keys() - CLUSTER_SCOPED - {CONFIG_MAP} if namespace else frozenset[Kind]()
    own = {kind: Scope(namespace=namespace, label_selector=KINDS[kind].scope.label_selector) for kind in namespaced}
    return {**SCOPES, CONFIG_MAP: Scope(namespace=SYSTEM_NAMESPACE), **own}
