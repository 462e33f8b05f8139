"""Chooses the objects to delete: objects of an inventory that are no longer wanted, and nothing else in the cluster.

An object is deleted only if gpuctl's inventory for the project has it, it is still gpuctl's (a run's object by its
maker, any other by its labels), and it is the very object that was observed (by its uid). A namespace goes last, once
it has none of gpuctl's objects.
"""

from __future__ import annotations

from itertools import chain

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import is_deleting, labels_of
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import Body, ClusterState, Ledger
from gpuctl.plan.inventory import OWN

_NAMESPACE = kinds.NAMESPACE[1]


def surplus(  # noqa: PLR0913, PLR0917 - what is known of one project
    cluster: str,
    ledger: Ledger,
    there: frozenset[ObjectRef],
    hidden: frozenset[ObjectRef],
    wanted: frozenset[ObjectRef],
    state: ClusterState,
) -> tuple[ObjectRef, ...]:
    """The project's objects to delete now, sorted: those in `there` (its existing unwanted objects) without `wanted`.

    `hidden`: objects that may exist unseen. `wanted`: all objects that stay. Cost: linear in those; in the inventory
    where a namespace may go.
    """
    found = sorted(there - wanted)
    occupied = set[str]()
    if any(map(is_namespace, found)):
        is_there = (ref for ref in ledger.inventory if ref in state.live)
        occupied = {ref.namespace for ref in chain(is_there, hidden)}
    may_have_data = kinds.CLAIM in state.unseen  # claims that people made are in no inventory
    return tuple(
        ref
        for ref in found
        if not is_deleting(state.live[ref])
        and _may_be_deleted(ref, state, cluster, ledger.project)
        and not (is_namespace(ref) and (may_have_data or ref.name in occupied))
    )


def _may_be_deleted(ref: ObjectRef, state: ClusterState, cluster: str, project: ProjectName) -> bool:
    """Whether an object of the inventory is still gpuctl's: a run's object by its maker, any other by its labels."""
    if is_workload(ref):
        own = state.own.get(ref)
        return own is not None and own.run[0].project == project
    return is_ours(state.live[ref], cluster, project)


def is_namespace(ref: ObjectRef) -> bool:
    """Whether the object is a Namespace."""
    return ref.kind == _NAMESPACE and (ref.api_version, ref.kind) == kinds.NAMESPACE


def is_ours(live: Body, cluster: str, project: str) -> bool:
    """Whether labels say that gpuctl made the object for this project of this cluster."""
    labels = labels_of(live)
    return (
        labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
        and labels.get(names.CLUSTER_LABEL) == cluster
        and (project == OWN or labels.get(names.PROJECT_LABEL) == project)
    )
